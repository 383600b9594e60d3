"""Meeting a server: once per connection, and which store it has: the one known here, or one that begins anew."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from fencepost.store.base import HeartbeatReply, Seen
from fencepost.store.redis import scripts
from fencepost.store.redis.fast import Now
from fencepost.store.redis.general import GeneralPath
from fencepost.store.redis.keys import SCHEMA, Keys, format_found
from fencepost.store.redis.link import Link
from fencepost.store.redis.rest import server_restarted, store_emptied
from fencepost.store.redis.server import RedisServerInfo

log = logging.getLogger("fencepost")


class RedisGreeting:
    """Of callers that come at once the first one greets, and the others wait for it."""

    def __init__(self, link: Link, meet: Callable[[], Awaitable[None]]) -> None:
        """`meet`: what a new connection is used for first."""
        self._link = link
        self._meet = meet
        self._greeting: asyncio.Task[None] | None = None
        self._greeted = 0
        """The generation of the link on which the server has been asked who it is."""

    async def ready(self) -> None:
        """Connected, to a server that has said who it is. A caller that comes meanwhile waits for the same."""
        if self._greeted == self._link.generation and self._link.is_open:
            return
        loop = asyncio.get_running_loop()
        greeting = self._greeting
        if greeting is None or greeting.done() or greeting.get_loop() is not loop:
            greeting = self._greeting = loop.create_task(self._greet(), name="fencepost-greeting")
            greeting.add_done_callback(_heard)
        await asyncio.shield(greeting)

    async def again(self) -> None:
        """Ask the server anew who it is."""
        self._greeted = 0
        await self.ready()

    async def _greet(self) -> None:
        await self._link.open()
        await self._meet()
        self._greeted = self._link.generation


class RedisHistory:
    """Which store this process knows, and the highest it was told of it."""

    def __init__(self, link: Link, keys: Keys, general_path: GeneralPath, incarnation: int | None) -> None:
        """`incarnation`: the first one of a store that is new."""
        self._link = link
        self._keys = keys
        self._general_path = general_path
        self._first = "" if incarnation is None else incarnation
        self._seen = Seen()
        self._logged_promise = ""
        self.id = ""

    def remember(self, reply: HeartbeatReply) -> None:
        seen, lease = self._seen, reply.leader
        incarnation, term = max(seen.incarnation, lease.era.incarnation), max(seen.term, lease.term)
        self._seen = Seen(incarnation, term, latest=max(reply.now, seen.latest or reply.now))

    async def learn(self, server: RedisServerInfo, now: Now, creates: bool) -> bool:
        """Go on with what this server has, or begin anew. False: it has nothing, and nothing shall be created."""
        server.refuse_what_cannot_work(self._link.name, was_primary=bool(self.id))
        fresh = secrets.token_hex(8)
        args = (*now, fresh, self._first, SCHEMA, server.run, self.id, int(creates))
        history, schema, run, gone = await self._link.ask("EVALSHA", scripts.INIT, self._keys.prefix, *args)
        if history is None:
            return False
        found = format_found(int(schema), self._link.name)
        found.check(self._link.name, converts=creates)
        if found.steps:
            await self._link.ask("HSET", self._keys.meta, "schema", SCHEMA)
        if self.id and self.id != history and gone is None:
            log.error("%s has lost its data: begun anew, see docs/stores.md", self._link.name)
            await self._general_path.take(history, store_emptied, (self.id, self._seen), {})
        self.id = history
        if run != server.run:
            about = run, server.run, server.keeps_writes
            await self._general_path.take(history, server_restarted, about, {})
        self._log_promise(server.promise())
        return True

    def _log_promise(self, promise: str) -> None:
        """Once, and again if it has changed."""
        if promise != self._logged_promise:
            self._logged_promise = promise
            log.info("%s: %s", self._link.name, promise)


def _heard(greeting: asyncio.Task[None]) -> None:
    """All who asked may have given up."""
    if not greeting.cancelled():
        greeting.exception()
