"""Runs that an engine carries out: the start gate, heartbeats of workers, adoption, and how they end."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.model import FireRecord, Reason, State
from fencepost.model.fires import Remote
from fencepost.model.triggers import every
from fencepost.store.base import Adopt, Alive, Missing, RemoteRuns, Report, RetryLater, Settle, Start
from fencepost.store.rows import ORPHANED_AFTER
from fencepost.testing.conformance.harness import HEARTBEAT, TTL, Harness

LONG = 10 * TTL


class PoolRules:
    async def test_only_a_replica_in_the_pool_claims(self, harness: Harness) -> None:
        await harness.join("a", "work")
        await harness.join("b", "work@gpu")
        await harness.define("job", every(minutes=1), execute_on="gpu")
        await harness.fall_due()
        asked = await harness.ask("a")
        assert (asked.claims, asked.wake_in) == ((), None), "what others must do is no reason to ask again"
        assert (await harness.claim("b")).replica == "b"

    async def test_a_pool_without_a_live_replica(self, harness: Harness) -> None:
        """Its fires wait for one; after an hour without they are missed, and say why. Other pools are not touched."""
        term = await harness.elect("a", "work")
        await harness.define("default", every(minutes=1))
        await harness.define("job", every(minutes=1), execute_on="gpu")
        await harness.fall_due()
        assert [fire.job_id for fire in await harness.claims("a")] == ["default"]
        for _ in range(2):
            await harness.store.sweep("a", term, [])
            assert [fire.state for fire in await harness.fires("job")][:1] == [State.PENDING]
            await harness.elapse(ORPHANED_AFTER.total_seconds() / 2)
        await harness.store.sweep("a", term, [])
        missed = (await harness.fires("job"))[0]
        assert (missed.state, missed.reason) == (State.MISSED, "no replica in pool gpu")


class RemoteRules:
    async def test_a_claim_hands_the_run_to_its_engine(self, harness: Harness) -> None:
        fire = await _sent(harness)
        assert (fire.state, fire.replica, fire.token, fire.attempt) == (State.RUNNING, "engine:dream", 1, 1)
        assert _remote(fire).by == "a"
        assert _remote(fire).worker is None
        assert (await harness.heartbeat("a")).held == (), "it belongs to the engine"
        runs = await _runs(harness)
        assert ([claim.fire for claim in runs.mine], runs.orphaned) == ([fire], ())
        assert runs.mine[0].job.engine_options == {"queue": "reports"}

    async def test_it_takes_no_slot(self, harness: Harness) -> None:
        await harness.elect("a", "@dream")
        await harness.define("job", every(minutes=1), engine="dream")
        await harness.fall_due()
        term = (await harness.campaign("a")).term
        assert await harness.claims("a", room=0, term=term) == []
        assert len((await _runs(harness)).mine) == 1

    async def test_only_a_replica_with_the_engine_claims_it(self, harness: Harness) -> None:
        await harness.join("a", "work")
        await harness.define("job", every(minutes=1), engine="dream")
        await harness.fall_due()
        assert await harness.claims("a") == []
        assert (await _runs(harness)).mine == ()

    async def test_the_gate_opens_once(self, harness: Harness) -> None:
        fire = await _sent(harness)
        assert await _start(harness, fire, "one")
        assert await _start(harness, fire, "one"), "asked again because the reply was lost"
        assert not await _start(harness, fire, "two")
        stored = _remote(await harness.fire(fire.key))
        assert (stored.worker, stored.refused) == ("one", 1)

    async def test_the_gate_is_closed_to_an_old_token(self, harness: Harness) -> None:
        fire = await _sent(harness)
        assert await _start(harness, fire, "one")
        assert await harness.update(RetryLater(fire.key, fire.token, 0.0))
        await harness.claims("a")
        assert not await _start(harness, fire, "one")
        assert await _start(harness, await harness.fire(fire.key), "two")

    async def test_a_worker_reports_and_settles(self, harness: Harness) -> None:
        fire = await _sent(harness)
        assert await _start(harness, fire)
        assert await harness.update(
            Report(fire.key, fire.token, {"done": 1}, saves=True, checkpoint=[2]), "w"
        )
        assert await harness.update(Settle(fire.key, fire.token, State.SUCCEEDED, result=3), "w")
        ended = await harness.fire(fire.key)
        assert (ended.state, ended.checkpoint, ended.result) == (State.SUCCEEDED, [2], 3)
        assert (await _runs(harness)).mine == ()

    async def test_the_death_of_its_replica_does_not_touch_it(self, harness: Harness) -> None:
        fire = await _sent(harness)
        await _start(harness, fire)
        term = await harness.elect("b", "@dream")
        assert (await harness.bury("b", term, "a")).settled == ()
        assert (await harness.fire(fire.key)).state is State.RUNNING

    async def test_a_leaving_replica_leaves_it_to_others(self, harness: Harness) -> None:
        fire = await _sent(harness)
        await harness.join("b", "@dream")
        assert not await harness.update(Adopt(fire.key, fire.token, "b"), "b"), "a is there"
        assert (await _runs(harness, "b")).orphaned == ()
        await harness.store.leave("a")
        assert [claim.fire.key for claim in (await _runs(harness, "b")).orphaned] == [fire.key]
        assert await harness.update(Adopt(fire.key, fire.token, "b"), "b")
        (claim,) = (await _runs(harness, "b")).mine
        assert _remote(claim.fire).adopted
        assert await _start(harness, fire), "its order is as good as before"

    async def test_what_was_observed_before_an_adoption_ends_nothing(self, harness: Harness) -> None:
        """A message of the replica that looked after it may arrive late: its successor may have sent it again."""
        fire = await _sent(harness)
        await harness.join("b", "@dream")
        await harness.store.leave("a")
        assert await harness.update(Adopt(fire.key, fire.token, "b"), "b")
        await harness.elapse(LONG)
        assert not await _missing(harness, fire)
        assert await _missing(harness, fire, beats=_remote(await harness.fire(fire.key)).beats)

    async def test_a_run_that_is_in_the_way_is_not_overdue(self, harness: Harness) -> None:
        fire = await _sent(harness)
        await _start(harness, fire)
        await harness.fall_due(60)
        closed = (await harness.ask("a")).closed
        assert [each.reason for each in closed] == [Reason.OVERLAP]

    # How it ends when its worker does not say so.

    @pytest.mark.parametrize(
        ("polls", "seconds", "heartbeats"),
        [(1, LONG, 0), (2, LONG, 1)],
        ids=["one poll", "another heartbeat"],
    )
    async def test_it_is_not_over(
        self, harness: Harness, polls: int, seconds: float, heartbeats: int
    ) -> None:
        fire = await _sent(harness)
        await _start(harness, fire)
        await harness.elapse(LONG)
        assert not await _missing(harness, fire, polls=polls, seconds=seconds, beats=heartbeats)

    async def test_it_is_not_over_while_its_worker_lives(self, harness: Harness) -> None:
        fire = await _sent(harness)
        await _start(harness, fire)
        await harness.elapse(TTL - 1)
        assert await harness.update(Alive(fire.key, fire.token, "w", HEARTBEAT, TTL), "w")
        await harness.elapse(TTL - 1)
        assert not await _missing(harness, fire, beats=1, seconds=TTL - 1)
        await harness.elapse(2)
        assert not await _missing(harness, fire, beats=1, seconds=HEARTBEAT), "seen for too short a time"
        assert await _missing(harness, fire, beats=1, seconds=TTL)

    async def test_a_heartbeat_of_another_worker_counts_for_nothing(self, harness: Harness) -> None:
        fire = await _sent(harness)
        await _start(harness, fire, "one")
        assert not await harness.update(Alive(fire.key, fire.token, "two", HEARTBEAT, TTL), "two")

    async def test_a_started_run_is_lost_with_its_engine(self, harness: Harness) -> None:
        fire = await _lost(harness)
        assert (fire.state, fire.reason) == (State.LOST, Reason.ENGINE_LOST)

    async def test_a_started_run_is_run_again_if_it_may(self, harness: Harness) -> None:
        fire = await _lost(harness, after_crash="rerun")
        assert (fire.state, fire.crashes) == (State.WAITING, 1)

    async def test_what_never_started_is_sent_again_a_few_times(self, harness: Harness) -> None:
        fire = await _sent(harness, crash_attempts=2)
        await harness.elapse(LONG)
        assert await _missing(harness, fire)
        fire = await harness.fire(fire.key)
        assert (fire.state, fire.crashes, fire.attempts[-1].outcome) == (State.WAITING, 1, "gone")
        await harness.claims("a")
        fire = await harness.fire(fire.key)
        assert (fire.token, fire.attempt) == (2, 2)
        await harness.elapse(LONG)
        assert await _missing(harness, fire)
        fire = await harness.fire(fire.key)
        assert (fire.state, fire.reason) == (State.LOST, Reason.NEVER_STARTED)

    async def test_an_order_on_its_way_is_not_given_up(self, harness: Harness) -> None:
        fire = await _sent(harness)
        assert not await _missing(harness, fire, seconds=1.0)

    async def test_the_engine_may_know_how_it_ended(self, harness: Harness) -> None:
        fire = await _sent(harness)
        await _start(harness, fire)
        await harness.elapse(LONG)
        then = Settle(fire.key, fire.token, State.FAILED, Reason.RAISED, "exit code 137")
        assert not await _missing(harness, fire, polls=1, then=then)
        assert await _missing(harness, fire, then=then)
        ended = await harness.fire(fire.key)
        assert (ended.state, ended.error) == (State.FAILED, "exit code 137")

    # Cancel.

    async def test_what_has_not_started_is_cancelled_at_once(self, harness: Harness) -> None:
        fire = await _sent(harness)
        await harness.store.cancel_fire(fire.key)
        assert (await harness.fire(fire.key)).state is State.CANCELLED
        assert not await _start(harness, fire)

    async def test_what_has_started_keeps_its_place_until_its_end_is_seen(self, harness: Harness) -> None:
        fire = await _sent(harness)
        await _start(harness, fire)
        await harness.store.cancel_fire(fire.key)
        stored = await harness.fire(fire.key)
        assert (stored.state, stored.cancel_requested) == (State.RUNNING, True)
        await harness.elapse(LONG)
        assert await _missing(harness, fire, then=Settle(fire.key, fire.token, State.FAILED))
        assert (await harness.fire(fire.key)).state is State.CANCELLED


async def _sent(harness: Harness, **policies: Any) -> FireRecord:
    """A minutely job of the engine `dream`, whose first fire replica `a` has claimed."""
    await harness.join("a", "@dream")
    options = {"engine": "dream", "engine_options": {"queue": "reports"}}
    await harness.define("job", every(minutes=1), **options, **policies)
    await harness.fall_due()
    assert await harness.claims("a") == []
    (fire,) = await harness.fires("job", State.RUNNING)
    return fire


async def _lost(harness: Harness, **policies: Any) -> FireRecord:
    fire = await _sent(harness, **policies)
    await _start(harness, fire)
    await harness.elapse(LONG)
    assert await _missing(harness, fire)
    return await harness.fire(fire.key)


def _remote(fire: FireRecord) -> Remote:
    remote = Remote.of(fire)
    assert remote is not None
    return remote


async def _runs(harness: Harness, replica: str = "a") -> RemoteRuns:
    return await harness.store.remote_runs(replica, "dream")


async def _start(harness: Harness, fire: FireRecord, worker: str = "w") -> bool:
    return await harness.update(Start(fire.key, fire.token, worker, HEARTBEAT, TTL), worker)


async def _missing(harness: Harness, fire: FireRecord, **fields: Any) -> bool:
    given = {"beats": 0, "seconds": LONG, "polls": 2, **fields}
    return await harness.update(Missing(fire.key, fire.token, **given))
