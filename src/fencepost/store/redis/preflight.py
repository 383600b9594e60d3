"""What can be said of a server before its store is opened."""

from __future__ import annotations

from fencepost.settings import redacted
from fencepost.store.preflight import Preflight, nothing_there, ok, unless_restarted, warning
from fencepost.store.redis.address import client_url, namespaces, prefix_of
from fencepost.store.redis.keys import Keys
from fencepost.store.redis.link import Link
from fencepost.store.redis.server import Server

_KEEP = "if a crash of the server must lose nothing: appendonly yes, appendfsync always, and no failover"


async def preflight(url: str, namespace: str) -> Preflight:
    link, keys = Link(client_url(url), redacted(url)), Keys(prefix_of(url, namespace))
    await link.open()
    try:
        server = await Server.ask(link)
        server.refuse_what_cannot_work(link.name)
        history = await link.ask("HGET", keys.leader, "history")
        run = await link.ask("HGET", keys.meta, "run")
        others = await namespaces(link, url) if history is None else []
    finally:
        await link.close()
    promise = ok(server.promise()) if server.keeps_writes else warning(server.promise(), _KEEP)
    if history is None:
        return nothing_there(link.name, namespace, others, promise)
    return unless_restarted(run == server.run, promise)
