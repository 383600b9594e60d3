"""A namespace moves from one server to a cluster: `fencepost store move`.

1. Its place on the cluster is reserved. Replicas that come too early are refused there.
2. Its keys are renamed on the old server, to the names they have in a cluster, in one step. From then on nothing
   changes there: replicas on the old server start and record nothing more.
3. The keys are copied. Lease and format are the last, and with them the namespace is open.

A move that was cut off is called again, and copies from the beginning. Of two at once only the later may write.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from fencepost.errors import ConfigurationError, StoreUnavailable
from fencepost.settings import REDIS_SCHEMES, checked_store_url, scheme_of
from fencepost.store.redis import scripts
from fencepost.store.redis.address import KEYS_PER_SCAN, prefix_of
from fencepost.store.redis.keys import ARRIVING, KINDS, MOVED, Keys
from fencepost.store.redis.link import Link
from fencepost.store.redis.preflight import stored_format
from fencepost.store.redis.server import RedisServerInfo

PAGE = 250
"""Members of a key in one command."""
AT_ONCE = 50
"""Keys that are copied together."""
TIMEOUT = 60.0
"""Seconds for one round trip: renaming a million keys takes some."""
FOLLOWERS_WITHIN = 10_000
"""Milliseconds in which followers of the old server must have what was renamed."""

WRITES = {"string": "SET", "list": "RPUSH", "set": "SADD", "hash": "HSET", "zset": "ZADD"}

Progress = Callable[[int, int], None]
"""Called with how many keys have been copied, and of how many."""


async def move(source_url: str, cluster_url: str, namespace: str, progress: Progress | None = None) -> int:
    """How many keys were copied. 0: it had been moved before."""
    schemes = [scheme_of(checked_store_url(url)) for url in (source_url, cluster_url)]
    if not set(schemes) <= set(REDIS_SCHEMES) or [each.endswith("+cluster") for each in schemes] != [
        False,
        True,
    ]:
        raise ConfigurationError("a store moves from redis:// or redis+sentinel:// to redis+cluster://")
    old, new = Keys(prefix_of(source_url, namespace)), Keys(prefix_of(cluster_url, namespace))
    source, target = Link(source_url, old.prefix), Link(cluster_url, new.prefix)
    try:
        for link in (source, target):
            await link.open()
            link.timeout = TIMEOUT
            (await RedisServerInfo.ask(link)).refuse_what_cannot_work(link.name)
        return await _move(source, Arrival(target, new), old, new, progress)
    finally:
        await source.close()
        await target.close()


class Arrival:
    """The namespace on the cluster while its keys arrive: refused by replicas, written by one move only."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._move = secrets.token_hex(8)

    async def reserve(self, history: str) -> bool:
        """False: it is complete."""
        args = (self._keys.prefix, ARRIVING, self._move, history)
        reply = await self._link.ask("EVALSHA", scripts.EXPECT, *args)
        if reply == "taken":
            raise ConfigurationError(
                f"{self._link.name} already holds another store in this namespace; choose another namespace there, or "
                f"stop its replicas and delete the keys {self._keys.prefix}:*"
            )
        return bool(reply == "reserved")

    async def give_up(self) -> None:
        await self.put("DEL", self._keys.leader, self._keys.meta)

    async def put(self, *words: Any) -> None:
        if not await self._link.ask("EVALSHA", scripts.ARRIVE, self._keys.prefix, self._move, *words):
            raise ConfigurationError(
                f"another `fencepost store move` writes to {self._link.name}; let it end"
            )

    async def open(self, lease: Sequence[str], meta: Sequence[str]) -> None:
        """Replicas are refused until the second command, which is one step."""
        await self.put("HSET", self._keys.leader, *lease)
        await self.put("HSET", self._keys.meta, *meta, "move", "")


async def _move(source: Link, target: Arrival, old: Keys, new: Keys, progress: Progress | None) -> int:
    is_new = await target.reserve(await _history(source, old, new))
    renamed = await source.ask("EVALSHA", scripts.MOVE, old.prefix, new.prefix, MOVED, *KINDS)
    if isinstance(renamed, str):
        if is_new:
            await target.give_up()
        raise ConfigurationError(
            f"the keys {old.prefix}:* cannot be told from those of another namespace, {renamed}:*; let the replicas "
            "of one of the two finish, start them anew on the cluster, and delete its keys here"
        )
    await _replicated(source)
    if not is_new:
        return 0
    keys = sorted(await _keys(source, new.prefix) - {new.leader, new.meta})
    for start in range(0, len(keys), AT_ONCE):
        if progress is not None:
            progress(start, len(keys))
        await asyncio.gather(*(_copy(source, target, key) for key in keys[start : start + AT_ONCE]))
    await target.open(await source.ask("HGETALL", new.leader), await source.ask("HGETALL", new.meta))
    return len(keys) + 2


async def _history(source: Link, old: Keys, new: Keys) -> str:
    """Of the namespace, under its new names if it has been renamed, else under its old ones."""
    for keys in (new, old):
        if found := await stored_format(source, keys):
            found.check(source.name, converts=True)
            return str(await source.ask("HGET", keys.leader, "history"))
    raise ConfigurationError(f"{source.name} does not hold this namespace; check --from and --namespace")


async def _replicated(source: Link) -> None:
    """A follower that is promoted without the new names would let replicas go on under the old ones."""
    info = await RedisServerInfo.ask(source)
    followers = int(info.info.get("connected_slaves", 0))
    if followers and await source.ask("WAIT", followers, FOLLOWERS_WITHIN) < followers:
        raise StoreUnavailable(
            f"{source.name}: a follower lags; if it were promoted, replicas would go on there. Call this again"
        )


async def _keys(link: Link, prefix: str) -> set[str]:
    found, cursor = set[str](), "0"
    while True:
        cursor, keys = await link.ask("SCAN", cursor, "MATCH", f"{prefix}:*", "COUNT", KEYS_PER_SCAN)
        found.update(keys)
        if cursor == "0":
            return found


async def _copy(source: Link, target: Arrival, key: str) -> None:
    """By the commands of its type: a dump is readable only for servers of the same make, or newer."""
    await target.put("DEL", key)
    kind = await source.ask("TYPE", key)
    async for words in _pages(source, key, kind):
        await target.put(WRITES[kind], key, *words)
    if (left := await source.ask("PTTL", key)) > 0:
        await target.put("PEXPIRE", key, left)


async def _pages(source: Link, key: str, kind: str) -> AsyncIterator[Sequence[Any]]:
    """Nothing, if the key has expired."""
    if kind == "string":
        value = await source.ask("GET", key)
        if value is not None:
            yield [value]
    elif kind in ("hash", "set"):
        cursor = "0"
        while True:
            scan = "HSCAN" if kind == "hash" else "SSCAN"
            cursor, words = await source.ask(scan, key, cursor, "COUNT", PAGE)
            for start in range(0, len(words), 2 * PAGE):  # small ones come whole
                yield words[start : start + 2 * PAGE]
            if cursor == "0":
                return
    elif kind in ("list", "zset"):
        start = 0
        while words := await _range(source, key, kind, start):
            yield words
            start += PAGE


async def _range(source: Link, key: str, kind: str, start: int) -> Sequence[Any]:
    stop = start + PAGE - 1
    if kind == "list":
        return list(await source.ask("LRANGE", key, start, stop))
    pairs = await source.ask("ZRANGE", key, start, stop, "WITHSCORES")
    return [word for n in range(0, len(pairs), 2) for word in (pairs[n + 1], pairs[n])]
