"""The connection to the server.

One connection serves a whole process. What is asked while a round trip is under way shares the next one: a claim,
a settlement and a heartbeat that come together cost one.

Behind Sentinel and in a cluster it leads to the primary of the moment (`topology.py`), and is given up as soon as that
server says, or others say, that it is the primary no longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import redis.asyncio as client
from hiredis import pack_command
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from fencepost.errors import ConfigurationError, FencepostError, StoreCorrupt, StoreUnavailable
from fencepost.settings import redacted
from fencepost.store.redis.address import Host, address_of
from fencepost.store.redis.scripts import Script
from fencepost.store.redis.topology import Commands, Primary, topology_of

TIMEOUT = 5.0
"""Seconds for one round trip, unless a TTL is so short that this would be too long."""

KEEPALIVE = {
    getattr(socket, option): value
    for option, value in {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3}.items()
    if hasattr(socket, option)
}

ELSEWHERE = (ReadOnlyError, AskError, ClusterDownError, TryAgainError)
"""Errors of a server that does not answer for these keys now, MOVED among them: another does, or this one in a moment.
The connection is given up, and the primary asked for anew."""
SAID_ELSEWHERE = ("READONLY", "MASTERDOWN", "CLUSTERDOWN", "non local key")
"""The same, said in the middle of a script."""
PASSING = ("LOADING", "BUSY", "NOREPLICAS", "MISCONF", "UNKILLABLE")
"""Errors of a server that will be well again."""
FULL = "OOM"
REFUSED = ("NOAUTH", "WRONGPASS", "NOPERM")

Answer = asyncio.Future[Any] | Future[Any]


class Link:
    generation = 0
    """Of the connection: all that is asked on one is answered by one run of one server."""

    def __init__(self, url: str, prefix: str = "") -> None:
        """`url`: of the store. `prefix`: of its keys; in a cluster it says which node has them."""
        self.name = redacted(url)
        """The server in messages, without secrets."""
        self.timeout = TIMEOUT
        self.primary: Primary | None = None
        """Where the connection leads to. None: where the URL says."""
        self._address = address_of(url)
        self._connections = _pool(self._address.client_url)
        self._topology = topology_of(self._address, prefix, self._ask_host)
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
            self.primary = await self.locate()
            self._connection = await self.connect(self.primary)
            self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
            self._waiting, self._serving = [], None
            self.generation += 1

    async def locate(self) -> Primary | None:
        """Where the primary is now. None: where the URL says."""
        if self._topology is None:
            return None
        try:
            return await self._topology.primary()
        except StoreUnavailable as error:
            reason = str(error).replace(f"{self.name}: ", "")  # errors of single hosts begin with it
            raise StoreUnavailable(f"{self.name}: {reason}") from error

    async def confirm(self) -> None:
        """Give the connection up unless it leads to the primary of this moment.

        Sentinels may have promoted another server while the old one was cut off or stopped. It does not know, and would
        go on to accept claims. After a failover no replica claims for 0.7 TTL (0016): a replica that asks with every
        heartbeat, thus twice in a TTL at the least, has left the old one by then.
        """
        if self._topology is None or not self.is_open:
            return
        try:
            primary = await self.locate()
        except FencepostError:
            await self.close()  # nothing may be claimed of a server that is not known to be the primary
            raise
        if primary != self.primary:
            await self.close()

    async def connect(self, primary: Primary | None) -> Any:
        """A connection of the caller's own."""
        where = {} if primary is None else {"host": primary.host, "port": primary.port}
        return await self._dial(where)

    async def _dial(self, where: Mapping[str, Any]) -> Any:
        """A name is resolved anew with each connection."""
        pool = self._connections
        connection: Any = pool.connection_class(**{**pool.connection_kwargs, **where})
        connection.socket_connect_timeout = self.timeout
        try:
            await connection.connect()
        except (RedisError, OSError) as error:
            with contextlib.suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)
            raise self.wrapped(error) from error
        return connection

    async def _ask_host(self, host: Host, commands: Commands) -> list[Any]:
        where: dict[str, Any] = {"host": host[0], "port": host[1]}
        if self._address.kind == "sentinel":
            where |= {**self._address.sentinel_login, "db": 0}
        connection = await self._dial(where)
        try:
            async with asyncio.timeout(self.timeout):
                replies = await _exchange(connection, commands)
        except (RedisError, OSError) as error:
            raise self.wrapped(error) from error
        finally:
            with contextlib.suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)
        return [self.wrapped(each) if isinstance(each, RedisError) else each for each in replies]

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
            raise StoreUnavailable(
                f"{self.name}: the event loop that would read the answer hangs, or was closed"
            ) from error

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
            failure = self.wrapped(error)
            for _, reply in (*asked, *self._waiting):
                _fail(reply, failure)
            if not isinstance(error, Exception):
                raise
            return
        for (_, reply), value in zip(asked, replies, strict=True):
            if reply.done():
                continue  # the caller has given up
            if isinstance(value, RedisError):
                _fail(reply, self.wrapped(value))
            else:
                reply.set_result(value)
        if any(map(_is_elsewhere, replies)) and self._connection is connection:
            await self.close()

    async def _round_trip(self, connection: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
        replies = await _exchange(connection, [_by_digest(command) for command in commands])
        unknown = [n for n, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if unknown:
            again = await _exchange(connection, [_in_full(commands[n]) for n in unknown])
            for n, reply in zip(unknown, again, strict=True):
                replies[n] = reply
        return replies

    def wrapped(self, error: BaseException) -> FencepostError:
        said = str(error) or type(error).__name__
        text = f"{self.name}: {said}"
        no_entry = isinstance(error, AuthenticationError | AuthorizationError | NoPermissionError)
        if no_entry or any(word in said for word in REFUSED):
            return ConfigurationError(f"{text}; check the user, the password and what they may do")
        if _is_elsewhere(error):
            return StoreUnavailable(f"{text} (a failover, or slots that are moved)")
        if isinstance(error, OutOfMemoryError) or (isinstance(error, ResponseError) and FULL in said):
            return StoreUnavailable(f"{text}: give the server more memory (maxmemory), or shorten retention")
        if isinstance(error, ResponseError) and "cluster support disabled" in said:
            return ConfigurationError(
                f"{text}; it is not part of a cluster: use redis:// or redis+sentinel://"
            )
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
    await connection.send_packed_command(
        [_packed(connection, words) for words in commands], check_health=False
    )
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(await connection.read_response())
        except ResponseError as error:
            replies.append(error)
    return replies


def _packed(connection: Any, words: Sequence[Any]) -> bytes:
    """As the client's own `pack_command` does it, which is written in Python and takes nine times as long."""
    try:
        return bytes(pack_command(tuple(words)))
    except TypeError:  # it takes str and int themselves, not classes derived from them
        return b"".join(connection.pack_command(*words))


def _is_elsewhere(reply: object) -> bool:
    if isinstance(reply, ELSEWHERE):
        return True
    return isinstance(reply, ResponseError) and any(word in str(reply) for word in SAID_ELSEWHERE)


def _by_digest(words: Sequence[Any]) -> Sequence[Any]:
    if isinstance(words[1], Script):
        return ("EVALSHA", words[1].sha, *_with_keys(words[2]), *words[2:])
    return words


def _in_full(words: Sequence[Any]) -> Sequence[Any]:
    return ("EVAL", words[1].text, *_with_keys(words[2]), *words[2:])


def _with_keys(prefix: str) -> Sequence[Any]:
    """Two keys for a script, by which a cluster knows the slot. One is always there, the other never: while the slot is
    moved to another node, where some keys are and some are not, the node refuses what names both. A script that found
    a part of its keys gone would stop half-way."""
    return 2, f"{prefix}:leader", f"{prefix}:never"


def _fail(reply: Answer, failure: FencepostError) -> None:
    if not reply.done():
        reply.set_exception(failure)


def _pool(url: str) -> client.ConnectionPool:
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
