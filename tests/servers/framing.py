"""Where a request ends in what a client sends. The proxy acts on whole requests, however the network cut them up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Request:
    data: bytes
    """What goes over the wire."""
    said: bytes
    """What rules look at: the same, and what it refers to."""


class Framing(Protocol):
    """One per connection."""

    def feed(self, data: bytes) -> list[Request]:
        """The requests that are complete now."""


def framing_for(scheme: str) -> Framing:
    """By the scheme of a URL. What we cannot read is taken as it comes, a request each time something arrives."""
    if scheme in ("redis", "valkey"):
        return RedisFraming()
    return PostgresFraming() if scheme in ("postgresql", "postgres") else NoFraming()


class NoFraming:
    def feed(self, data: bytes) -> list[Request]:
        return [Request(data, data)]


class RedisFraming:
    """A request is a command, also in a pipeline: `*2 $3 GET $1 a`, or a line as people type it."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[Request]:
        self._buffer += data
        found = []
        while (end := self._end()) is not None:
            found.append(Request(self._buffer[:end], self._buffer[:end]))
            self._buffer = self._buffer[end:]
        return found

    def _end(self) -> int | None:
        line = self._buffer.find(b"\r\n")
        if line < 0:
            return None
        end = line + 2
        for _ in range(int(self._buffer[1:line]) if self._buffer.startswith(b"*") else 0):
            line = self._buffer.find(b"\r\n", end)
            if line < 0:
                return None
            end = line + 2 + int(self._buffer[end + 1 : line]) + 2
        return end if end <= len(self._buffer) else None


class PostgresFraming:
    """A request is what a client sends until it waits for an answer: one Query, or Parse, Bind, Execute up to Sync.

    A statement that was prepared under a name is later run by that name. So its text is remembered; it counts as said
    each time the statement is run, and not when it is prepared. Rules need not know about names.
    """

    STEPS = b"PBDEC"  # Parse, Bind, Describe, Execute, Close: nothing is answered before a Sync or Flush
    ASKS_FOR_ENCRYPTION = (80877103, 80877104)  # TLS, GSSAPI; after a refusal the client starts once more

    def __init__(self) -> None:
        self._buffer = b""
        self._started = False
        self._statements: dict[bytes, bytes] = {}

    def feed(self, data: bytes) -> list[Request]:
        self._buffer += data
        found = []
        begin, kinds, referred = 0, b"", list[bytes]()
        for kind, message, end in self._messages():
            kinds += kind
            if kind == b"P":
                name, text, _ = message.split(b"\0", 2)
                self._statements[name] = text
            elif kind == b"B":
                referred.append(self._statements.get(message.split(b"\0", 2)[1], b""))
            if kind not in self.STEPS:
                request = self._buffer[begin:end]
                prepares_only = b"P" in kinds and b"B" not in kinds
                found.append(Request(request, b"" if prepares_only else b"\0".join([request, *referred])))
                begin, kinds, referred = end, b"", []
        self._buffer = self._buffer[begin:]
        return found

    def _messages(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Each complete one: its kind, its content, and where it ends."""
        at = 0
        while True:
            head = at + self._started  # the first messages of a connection have no kind
            body = head + 4
            end = head + int.from_bytes(self._buffer[head:body])
            if len(self._buffer) < max(end, body + 4 * (not self._started)):
                return
            kind, message = self._buffer[at:head] or b"start", self._buffer[body:end]
            self._started = self._started or int.from_bytes(message[:4]) not in self.ASKS_FOR_ENCRYPTION
            yield kind, message, end
            at = end
