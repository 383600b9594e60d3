"""A pooler as strict as any: each transaction is with the server process that has waited longest.

It does what a pooler in transaction mode does to its clients: settings, session locks, LISTEN and named statements are
lost from one transaction to the next, and the process number it tells them is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

SERVERS = 3
_ASKS_FOR_ENCRYPTION = (80877103, 80877104)
_KEY_DATA = b"K" + struct.pack("!iii", 12, 1, 1)


@contextmanager
def transaction_pooler(url: str) -> Iterator[str]:
    """In front of the database with this URL; gives the URL to use."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    pooler = Pooler(url)
    try:
        yield asyncio.run_coroutine_threadsafe(pooler.start(), loop).result(60)
    finally:
        asyncio.run_coroutine_threadsafe(pooler.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooler:
    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._idle: asyncio.Queue[Streams] = asyncio.Queue()
        self._greeting = b""
        self._open: list[asyncio.StreamWriter] = []

    async def start(self) -> str:
        for _ in range(SERVERS):
            self._idle.put_nowait(await self._connect())
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{port}").geturl()

    async def stop(self) -> None:
        self._server.close()
        for writer in self._open:
            writer.close()
        await asyncio.sleep(0.05)

    async def _connect(self) -> Streams:
        reader, writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._open.append(writer)
        words = ["user", self._parts.username or "", "database", self._parts.path.removeprefix("/")]
        body = struct.pack("!i", 3 << 16) + b"".join(word.encode() + b"\0" for word in words) + b"\0"
        writer.write(struct.pack("!i", len(body) + 4) + body)
        self._greeting = b""
        while True:
            kind, message = await _message(reader)
            if kind != b"K":
                self._greeting += message
            if kind == b"Z":
                return reader, writer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (length,) = struct.unpack("!i", await reader.readexactly(4))
                start = await reader.readexactly(length - 4)
                if struct.unpack("!i", start[:4])[0] not in _ASKS_FOR_ENCRYPTION:
                    break
                writer.write(b"N")
            writer.write(self._greeting[:-6] + _KEY_DATA + self._greeting[-6:])
            while True:
                kind, message = await _message(reader)
                if kind == b"X":
                    break
                await self._transaction(reader, writer, message)
        writer.close()

    async def _transaction(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes
    ) -> None:
        server = await self._idle.get()
        try:
            while True:
                server[1].write(message)
                while message[:1] not in (b"Q", b"S"):
                    _, message = await _message(reader)
                    server[1].write(message)
                while True:
                    kind, answer = await _message(server[0])
                    writer.write(answer)
                    if kind == b"Z":
                        break
                if answer[-1:] == b"I":
                    return
                _, message = await _message(reader)
        finally:
            self._idle.put_nowait(server)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)
