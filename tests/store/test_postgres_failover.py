"""Another PostgreSQL server takes over: a standby that lagged, an old primary that only reads, a pooler in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from fencepost.errors import StoreUnavailable
from fencepost.model import State
from fencepost.model.triggers import every
from fencepost.store.base import ClaimRequest, HeartbeatRequest, PutJob, Seen, Settle
from fencepost.store.postgres import PostgresStore
from fencepost.testing.conformance import Harness, job_of
from tests.servers import PostgresServer, ServerMissing, postgres
from tests.servers.pgbouncer import pgbouncer
from tests.servers.standby import Standby
from tests.store.test_postgres_own import answers, join, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@dataclass(frozen=True)
class Pair:
    primary: PostgresServer
    standby: Standby

    @property
    def url(self) -> str:
        hosts = ",".join(f"{each.host}:{each.port}" for each in (self.primary, self.standby))
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"


@pytest.fixture
def pair() -> Iterator[Pair]:
    with postgres(16) as primary, Standby(primary) as standby:
        yield Pair(primary, standby)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def a_run(store: PostgresStore, replica: str = "a") -> Any:
    """A job that runs: its fire, not settled."""
    await store.put_jobs([PutJob(job_of("job", every(seconds=0.2)))])
    harness = Harness(store, asyncio.sleep)
    for number in range(1, 200):
        await harness.plan(5)
        era = (await store.roster()).leader.era
        request = ClaimRequest(replica, number, 1, None, era.incarnation, era.server)
        if claims := (await store.claim_fires(request)).claims:
            return claims[0].fire
        await asyncio.sleep(0.05)
    raise AssertionError("nothing was due")


async def test_a_stale_standby_that_is_promoted_has_lost_data(pair: Pair) -> None:
    async with opened(pair.url) as store:
        await join(store, "a")
        await asyncio.to_thread(pair.standby.wait_in_step)
        pair.standby.stop()
        fire = await a_run(store)
        reply = await store.heartbeat(HeartbeatRequest("a", 2, 30.0, 10.0))
        seen = Seen(reply.leader.era.incarnation, reply.leader.term, reply.steps, reply.leader.era.server)
        pair.primary.kill()
        pair.standby.start()
        with pytest.raises(StoreUnavailable):
            await store.roster()
        pair.standby.promote()
        await until(lambda: answers(store))
        era = (await store.roster()).leader.era
        assert (era.incarnation, era.standing) == (1, "restarted")
        reply = await store.heartbeat(HeartbeatRequest("a", 3, 30.0, 10.0, seen=seen))
        assert (reply.leader.era.incarnation, reply.leader.era.standing) == (2, "lost")
        refused = await store.update_claims("a", [Settle(fire.key, fire.token, State.SUCCEEDED)])
        assert refused.accepted == (False,)
        assert (await a_run(store)).token > fire.token


async def test_an_old_primary_that_can_only_read_is_left(pair: Pair) -> None:
    """It still answers, and says 25006 to every write."""
    async with opened(pair.url) as store:
        await join(store, "a")
        await store.wait(0.01)  # the line is there
        await asyncio.to_thread(pair.standby.wait_in_step)
        pair.standby.promote()
        pair.primary.execute("alter system set default_transaction_read_only = on")
        pair.primary.execute("select pg_reload_conf()")

        async def known_to_the_standby() -> bool:
            """Its server reads the changed setting a moment after it was asked to: until then it takes heartbeats."""
            try:
                reply = await store.heartbeat(HeartbeatRequest("a", 2, 30.0, 10.0))
            except StoreUnavailable:
                return False
            assert store._session.db is not None
            return reply.known and store._session.db.info.port == pair.standby.port

        await until(known_to_the_standby)
        assert (await store.roster()).leader.era.incarnation == 1

        async def line_followed() -> bool:
            line = store._signs.line().db
            return line is not None and line.info.port == pair.standby.port

        await until(line_followed)


async def test_a_failover_behind_a_pooler_is_noticed_although_the_connection_stays(pair: Pair) -> None:
    try:
        made = pgbouncer(pair.primary)
    except ServerMissing as missing:
        pytest.skip(str(missing))
    with made as pooler:
        async with opened(pooler.url) as store:
            await join(store, "a")
            await a_run(store)
            connection = store._session.db
            assert connection is not None
            await asyncio.to_thread(pair.standby.wait_in_step)
            pair.standby.promote()
            pooler.lead_to(pair.standby)
            pair.primary.kill()

            async def led_there() -> bool:
                with psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) as other:
                    row = other.execute("select current_setting('port')").fetchone()
                return row == (str(pair.standby.port),)

            await until(led_there)
            request = ClaimRequest("a", 500, 1, None, 0, "")
            with pytest.raises(StoreUnavailable, match="another server"):
                await store.claim_fires(request)
            assert (await store.claim_fires(request)).claims == ()
            era = (await store.roster()).leader.era
            assert (era.incarnation, era.standing) == (1, "restarted")
