"""A TCP proxy that harms requests on purpose, and counts how often.

    with Proxy(server.url) as proxy:
        lost = proxy.rule(cut_after, match=b"fencepost:claim", every=3)
        ...                                # clients use proxy.url
        assert (lost.seen, lost.done) == (9, 3)

It runs on a thread of its own; rules and switches may be used from any other. Rules are asked in the order in which
they were made, and the first that applies has the request. `docs/testing.md` says how to tell requests apart.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Self, TypeVar
from urllib.parse import urlsplit

from tests.servers.framing import Request, framing_for
from tests.servers.link import Action, Link, Side
from tests.servers.ports import HOST

T = TypeVar("T")
PATIENCE = 10.0


# --- what can happen to a request -------------------------------------------------------------------------


async def cut_before(link: Link, request: Request) -> None:
    """The connection closes, and the request never reaches the server."""
    link.cut()


async def cut_after(link: Link, request: Request) -> None:
    """The server does what it was asked, all of it; then the connection closes, and the client never sees a reply."""
    await link.forward_as_last(request)
    link.cut()


async def reset(link: Link, request: Request) -> None:
    """As `cut_before`, but the client gets "connection reset by peer"."""
    link.cut(reset=True)


async def half_open(link: Link, request: Request) -> None:
    """From now on nothing passes, either way, not even that the other side has closed. Both believe it open."""
    link.silence()


def hold(seconds: float) -> Action:
    """The server gets the request at once, the client the reply so much later."""

    async def holding(link: Link, request: Request) -> None:
        with link.replies_held():
            await link.forward(request)
            await asyncio.sleep(seconds)

    return holding


def delay(seconds: float) -> Action:
    """The server gets the request so much later."""

    async def delaying(link: Link, request: Request) -> None:
        await asyncio.sleep(seconds)
        await link.forward(request)

    return delaying


def sliced(size: int = 1, pause: float = 0.001) -> Action:
    """The request and its reply arrive in pieces of so many bytes."""

    async def slicing(link: Link, request: Request) -> None:
        link.slices = (size, pause)
        await link.forward(request)

    return slicing


# --- the proxy --------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Rule:
    action: Action
    match: bytes | Callable[[bytes], bool]
    every: int
    times: int | None
    connections: Container[int] | None
    name: str
    seen: int = 0
    """Requests that matched."""
    done: int = 0
    """Requests it was applied to."""

    def applies(self, connection: int, said: bytes) -> bool:
        if self.connections is not None and connection not in self.connections:
            return False
        if not (self.match(said) if callable(self.match) else self.match in said):
            return False
        self.seen += 1
        if self.seen % self.every or self.done == self.times:
            return False
        self.done += 1
        return True

    def __str__(self) -> str:
        return f"{self.name}: {self.done} of {self.seen}"


class Proxy:
    """In front of the server at `url`. It opens a connection of its own for each that it gets."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._rules: tuple[Rule, ...] = ()
        self._links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._errors: list[Exception] = []
        self._passing = asyncio.Event()
        self.port = 0
        self.connections = 0
        """So many were made so far. The first has the number 1."""
        self.requests = 0

    @property
    def url(self) -> str:
        """The server's, by way of the proxy."""
        user, at, _ = self._target.netloc.rpartition("@")
        return self._target._replace(netloc=f"{user}{at}{HOST}:{self.port}").geturl()

    def rule(
        self,
        action: Action,
        match: bytes | Callable[[bytes], bool] = b"",
        *,
        every: int = 1,
        times: int | None = None,
        connections: Container[int] | None = None,
        name: str = "",
    ) -> Rule:
        """Apply `action` to every n-th request that contains `match` (or for which it says True), at most so many
        times, and only on connections with these numbers."""
        rule = Rule(action, match, every, times, connections, name or getattr(action, "__name__", "rule"))
        self._rules = (*self._rules, rule)
        return rule

    def clear(self) -> None:
        """Forget all rules. What was done to connections stays done."""
        self._rules = ()

    # --- switches: at once, for all connections, whether anything is asked or not ---------------------------

    def hold(self) -> None:
        """Nothing passes, either way, until `release`; then all of it does: a network that is gone for a while."""
        self._call(self._passing.clear)

    def release(self) -> None:
        self._call(self._passing.set)

    def cut(self, *, reset: bool = False) -> int:
        """Close all connections that are open now; how many."""
        return self._call(lambda: sum(link.cut(reset=reset) for link in self._links))

    def silence(self) -> int:
        """Make all connections that are open now half-open; how many. New ones work."""
        return self._call(lambda: sum(link.silence() for link in self._links))

    # --- inside -------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(PATIENCE)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
        if self._errors and kind is None:
            raise ExceptionGroup("the proxy failed", self._errors)

    async def _listen(self) -> int:
        self._passing.set()
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._serve(self.connections, Side(reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, number: int, client: Side) -> None:
        try:
            server = Side(*await asyncio.open_connection(self._target.hostname, self._target.port))
        except OSError:
            client.close(reset=True)  # the server is down: the nearest we can come to refusing
            return
        link = Link(number, client, server, self._passing, self._action_for)
        self._links.add(link)
        try:
            await link.run(framing_for(self._target.scheme))
        except Exception as error:
            self._errors.append(error)
        finally:
            self._links.remove(link)

    def _action_for(self, link: Link, request: Request) -> Action:
        self.requests += 1
        for rule in self._rules:
            if rule.applies(link.number, request.said):
                return rule.action
        return Link.forward

    async def _end(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _call(self, function: Callable[[], T]) -> T:
        """On the proxy's thread: when this returns, it has happened."""

        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(PATIENCE)
