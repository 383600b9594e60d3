"""The connection to the server.

One connection serves a whole process. What is asked while a round trip is under way shares the next one: a claim,
a settlement and a heartbeat that come together cost one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import redis.asyncio as client
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoScriptError, RedisError, ResponseError

from fencepost.errors import ConfigurationError, FencepostError, StoreCorrupt, StoreUnavailable
from fencepost.store.redis.scripts import Script

TIMEOUT = 5.0
"""Seconds for one round trip, unless a TTL is so short that this would be too long."""

KEEPALIVE = {
    getattr(socket, option): value
    for option, value in {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3}.items()
    if hasattr(socket, option)
}

PASSING = (
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "OOM",
    "BUSY",
    "NOREPLICAS",
    "MISCONF",
    "TRYAGAIN",
    "UNKILLABLE",
)
"""Errors of a server that will be well again."""
REFUSED = ("NOAUTH", "WRONGPASS", "NOPERM")

Answer = asyncio.Future[Any] | Future[Any]


class Link:
    generation = 0
    """Of the connection: all that is asked on one is answered by one run of one server."""

    def __init__(self, url: str, name: str) -> None:
        """`name`: the server in messages, without secrets."""
        self.name = name
        self.timeout = TIMEOUT
        self._connections = _pool(url, name)
        self._connection: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._waiting: list[tuple[Sequence[Any], Answer]] = []
        self._serving: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return (
            self._connection is not None
            and self._loop is asyncio.get_running_loop()
            and self._pid == os.getpid()
        )

    async def open(self) -> None:
        """Connect, unless it is. One made on another loop, or before a fork, is left alone."""
        if not self.is_open:
            self._connection = await self.connect()
            self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
            self._waiting, self._serving = [], None
            self.generation += 1

    async def connect(self) -> Any:
        """A connection of the caller's own."""
        connection: Any = self._connections.make_connection()  # type: ignore[no-untyped-call]
        connection.socket_connect_timeout = self.timeout
        try:
            await connection.connect()
        except (RedisError, OSError) as error:
            with contextlib.suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)
            raise self.told(error) from error
        return connection

    async def close(self) -> None:
        if self.is_open:
            connection, self._connection = self._connection, None
            with contextlib.suppress(RedisError, OSError):
                await connection.disconnect()

    # --- asking -------------------------------------------------------------------------------------------

    async def ask(self, *words: Any) -> Any:
        """A command, or `"EVALSHA"` with a script, and its words."""
        reply = asyncio.get_running_loop().create_future()
        self._put(self.generation, words, reply)
        return await reply

    def ask_from_thread(self, generation: int, *words: Any) -> Any:
        """The same, from another thread: for a step of several questions to one run of the server."""
        assert self._loop is not None
        reply: Future[Any] = Future()
        try:
            self._loop.call_soon_threadsafe(self._put, generation, words, reply)
            return reply.result(4 * self.timeout)
        except (TimeoutError, RuntimeError) as error:  # the loop hangs, or has been closed
            raise StoreUnavailable(f"{self.name}: nobody waits for an answer any more") from error

    def _put(self, generation: int, words: Sequence[Any], reply: Answer) -> None:
        if generation != self.generation or not self.is_open:
            reply.set_exception(StoreUnavailable(f"{self.name}: the connection was lost"))
            return
        self._waiting.append((words, reply))
        if self._serving is None:
            self._serving = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        try:
            while self._waiting and self._connection is not None:
                taken, self._waiting = self._waiting, []
                await self._answer([(words, reply) for words, reply in taken if not reply.done()])
        finally:
            self._serving = None
            for _, reply in self._waiting:  # it was closed
                _fail(reply, StoreUnavailable(f"{self.name}: the connection was closed"))
            self._waiting = []

    async def _answer(self, asked: Sequence[tuple[Sequence[Any], Answer]]) -> None:
        connection = self._connection
        try:
            with Patience(self.timeout):
                replies = await self._round_trip(connection, [words for words, _ in asked])
        except BaseException as error:
            # What was asked may have been done. The next question begins with a new connection.
            self._connection = None
            with contextlib.suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)
            failure = self.told(error)
            for _, reply in (*asked, *self._waiting):
                _fail(reply, failure)
            if not isinstance(error, Exception):
                raise
            return
        for (_, reply), value in zip(asked, replies, strict=True):
            if reply.done():
                continue  # whoever asked has given up
            if isinstance(value, RedisError):
                _fail(reply, self.told(value))
            else:
                reply.set_result(value)

    async def _round_trip(self, connection: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        replies = await _exchange(connection, [_by_digest(command) for command in commands])
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            again = await _exchange(connection, [_in_full(commands[n]) for n in unknown])
            for n, reply in zip(unknown, again, strict=True):
                replies[n] = reply
        return replies

    def told(self, error: BaseException) -> FencepostError:
        said = str(error) or type(error).__name__
        text = f"{self.name}: {said}"
        if isinstance(error, AuthenticationError) or any(word in said for word in REFUSED):
            return ConfigurationError(f"{text}; check the user, the password and what they may do")
        if isinstance(error, ResponseError) and not any(word in said for word in PASSING):
            return StoreCorrupt(
                f"{text}; is this prefix used by another application, or this server a proxy?"
            )
        return StoreUnavailable(text)


class Patience:
    """Ends what takes too long with a `TimeoutError`, but first gives it a moment more: if it was this process that
    was held up, the answer may be here and only waits to be read."""

    MOMENT = 0.25

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._timer = self._loop.call_later(seconds, self._doubt)
        self._ended = False

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._timer.cancel()
        if (
            self._ended
            and isinstance(error, asyncio.CancelledError)
            and self._task
            and self._task.uncancel() == 0
        ):
            raise TimeoutError("the server does not answer") from error

    def _doubt(self) -> None:
        self._timer = self._loop.call_later(self.MOMENT, self._end)

    def _end(self) -> None:
        self._ended = True
        if self._task is not None:
            self._task.cancel()


async def _exchange(connection: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
    await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(await connection.read_response())
        except ResponseError as error:
            replies.append(error)
    return replies


def _by_digest(words: Sequence[Any]) -> Sequence[Any]:
    if isinstance(words[1], Script):
        return ("EVALSHA", words[1].sha, 0, *words[2:])
    return words


def _in_full(words: Sequence[Any]) -> Sequence[Any]:
    return ("EVAL", words[1].text, 0, *words[2:])


def _fail(reply: Answer, failure: FencepostError) -> None:
    if not reply.done():
        reply.set_exception(failure)


def _pool(url: str, name: str) -> client.ConnectionPool:
    """Only ever used to make connections as the URL says."""
    try:
        pool = client.ConnectionPool.from_url(
            url,
            decode_responses=True,
            socket_timeout=None,  # see Patience
            socket_connect_timeout=TIMEOUT,
            socket_keepalive=True,
            socket_keepalive_options=KEEPALIVE,
            health_check_interval=0,
            # Repeating is the business of who asks: only there is it known what may be repeated.
            retry=Retry(NoBackoff(), 0),
            client_name="fencepost",
            protocol=2,
        )
        pool.connection_class(**pool.connection_kwargs)  # connects to nothing; it only checks the parameters
    except (ValueError, TypeError, RedisError):
        # The client's own words are left out: what it calls a parameter may be a piece of the password.
        raise ConfigurationError(
            f"the store URL ({url.partition('://')[0]}://…) has a port, a database or a parameter after ? that the "
            "Redis client does not accept"
        ) from None
    return pool
