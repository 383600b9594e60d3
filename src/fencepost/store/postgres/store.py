"""The store itself: a session with the server, and for each operation the way it takes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from fencepost.clock import Clock
from fencepost.errors import NothingStored
from fencepost.model import FireRecord
from fencepost.store import mirror
from fencepost.store.base import Added, Evidence, HeartbeatReply, HeartbeatRequest, Home, NewFire
from fencepost.store.formats import Contents
from fencepost.store.mirror import Mirror, P, T
from fencepost.store.postgres import rest
from fencepost.store.postgres.connection import PATIENCE, Connection
from fencepost.store.postgres.counting import PostgresCounting
from fencepost.store.postgres.paths import PostgresPaths
from fencepost.store.postgres.preflight import contents, preflight
from fencepost.store.postgres.records import place_of
from fencepost.store.postgres.schema import meta, namespaces, prepare, version
from fencepost.store.postgres.session import PostgresSession
from fencepost.store.postgres.signs import PostgresSigns
from fencepost.store.postgres.steps import PostgresSteps
from fencepost.store.preflight import Preflight
from fencepost.store.rules import fires
from fencepost.store.texts import KnownJobs
from fencepost.store.waiting import ASSURE_EVERY


class PostgresStore(Mirror):
    """Replicas on any number of machines share a database.

    All of a process's steps go through one connection, on a thread of its own.
    """

    assure_every = ASSURE_EVERY
    proves_death = False

    def __init__(
        self, url: str, namespace: str = "default", clock: Clock | None = None, *, fast: bool = True
    ) -> None:
        """`fast`: take the fast path where there is one. Without it every step goes the general path."""
        self._clock = clock
        self._session = PostgresSession(url, namespace, self._set_up)
        self.name = self._session.name
        self.counting = PostgresCounting(self._session)
        self._signs = PostgresSigns(self._session)
        self._steps = PostgresSteps(clock, self.unreadable)
        self._paths = PostgresPaths(self._steps, fast, self._signs.tidy)
        self._owner: PostgresStore | None = None
        """Of a store for reading: whose signs it uses."""

    def for_reading(self) -> PostgresStore:
        store = PostgresStore(self._session.url, self._session.names.namespace, self._clock)
        store._steps.known_jobs = KnownJobs()
        store._owner, store._signs = self, self._signs
        return store

    async def preflight(self, name: str) -> Preflight:
        return await asyncio.to_thread(preflight, self._session.url, self._session.names.namespace)

    async def contents(self) -> Contents:
        return await asyncio.to_thread(contents, self._session.url, self._session.names.namespace)

    async def open(self) -> None:
        await self._session.ask(lambda db: None)

    async def close(self) -> None:
        await self._session.close(*[self._signs.close] if self._owner is None else [])

    def _set_up(self, db: Connection) -> None:
        names = self._session.names
        if not self.creates and version(db) is None:
            raise NothingStored(self.name, names.namespace, namespaces(db))
        prepare(db, self.name, converts=self.creates)
        if meta(db, "history") != db.server.history:
            self._steps.alone(db, rest.follow, db, db.server.history, secrets.token_hex(4))
        self.home = Home("postgresql", db.server.database, names.schema)
        if self._owner is None:
            self._signs.connected(db)

    # --- hints and evidence ---------------------------------------------------------------------------------

    async def wait(self, seconds: float) -> bool:
        return await self._signs.wait(seconds)

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        return await self._signs.evidence(replicas)

    @property
    def evidence_every(self) -> float:  # type: ignore[override]
        return self._signs.every

    async def assure(self, replica: str) -> None:
        await self._signs.assure(replica)

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        # An answer that comes after the lease has ended is of no use.
        self._session.patience = min(PATIENCE, max(1.0, request.ttl / 5))
        reply = await super().heartbeat(request)
        if request.joining and reply.known:
            self._signs.line().hold(request.replica)
        return reply

    async def leave(self, replica: str) -> None:
        await super().leave(replica)
        self._signs.line().release(replica)

    # --- operations -----------------------------------------------------------------------------------------

    async def _write(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._session.ask(self._paths.write, step, *args)
        return reply

    async def _read(self, step: mirror.Step[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        reply: T = await self._session.ask(self._paths.read, step, *args)
        return reply

    async def add_fire(self, fire: NewFire) -> Added:
        return await self._steps.act(self._session, fire.job_id, fires.add_fire, fire)

    async def cancel_fire(self, key: str, by: str = "", dead_token: int | None = None) -> FireRecord | None:
        place = place_of(key)
        if place is None:
            return None
        return await self._steps.act(self._session, place.job_id, fires.cancel_fire, key, by, dead_token)
