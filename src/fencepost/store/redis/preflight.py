"""What can be said of a server before its store is opened."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fencepost.errors import NothingStored
from fencepost.store.formats import Contents, Format, Present
from fencepost.store.preflight import (
    Preflight,
    nothing_there,
    ok,
    unless_outdated,
    unless_restarted,
    warning,
)
from fencepost.store.redis.address import namespaces, prefix_of
from fencepost.store.redis.keys import Keys, format_found
from fencepost.store.redis.link import Link
from fencepost.store.redis.server import RedisServerInfo

_KEEP = "if a crash of the server must lose nothing: appendonly yes, appendfsync always, and no failover"


async def preflight(url: str, namespace: str) -> Preflight:
    keys = Keys(prefix_of(url, namespace))
    async with _for_reading(url, keys) as link:
        server = await RedisServerInfo.ask(link)
        server.refuse_what_cannot_work(link.name)
        found, run = await stored_format(link, keys), await link.ask("HGET", keys.meta, "run")
        others = await namespaces(link, url) if found is None else []
    promise = ok(server.promise()) if server.keeps_writes else warning(server.promise(), _KEEP)
    if found is None:
        return nothing_there(link.name, namespace, others, promise)
    return unless_outdated(found, unless_restarted(run == server.run, promise))


async def contents(url: str, namespace: str) -> Contents:
    keys = Keys(prefix_of(url, namespace))
    async with _for_reading(url, keys) as link:
        if (found := await stored_format(link, keys)) is None:
            raise NothingStored(link.name, namespace, await namespaces(link, url))
        jobs = await link.ask("HLEN", keys.jobs)
        ids = sorted(await link.ask("SMEMBERS", keys.replicas))
        rows = [await link.ask("HGET", keys.replica(id), "text") for id in ids]
    replicas = (
        Present(id, json.loads(row or "{}").get("version", "")) for id, row in zip(ids, rows, strict=True)
    )
    return Contents(found, int(jobs), None, tuple(replicas))


async def stored_format(link: Link, keys: Keys) -> Format | None:
    """None: the namespace holds nothing."""
    if await link.ask("HGET", keys.leader, "history") is None:
        return None
    return format_found(int(await link.ask("HGET", keys.meta, "schema") or 0), link.name)


@asynccontextmanager
async def _for_reading(url: str, keys: Keys) -> AsyncIterator[Link]:
    link = Link(url, keys.prefix)
    await link.open()
    try:
        yield link
    finally:
        await link.close()
