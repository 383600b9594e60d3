"""TLS before a server that has none: what comes in is decrypted and passed on."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.certificates import certificate
from tests.servers.ports import HOST


@contextmanager
def tls_before(port: int, listening: int, folder: Path) -> Iterator[str]:
    """On the port `listening`, before `port`. Gives the path of the certificate that clients must trust."""
    made = certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made["tls_cert"], made["tls_key"])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there = await asyncio.open_connection(HOST, port)
            await asyncio.gather(_pass(reader, there[1]), _pass(there[0], writer))

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    starting = asyncio.start_server(serve, HOST, listening, ssl=context)
    server = asyncio.run_coroutine_threadsafe(starting, loop).result(10)
    try:
        yield made["tls_cert"]
    finally:
        loop.call_soon_threadsafe(server.close)
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _end_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
