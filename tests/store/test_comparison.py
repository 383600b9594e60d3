"""The comparison with the reference model: that it reaches everything, and that it notices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest

from fencepost.model import FireRecord, JobRecord, Reason, State
from fencepost.store.base import (
    ChangeJob,
    Claimed,
    ClaimRequest,
    FireQuery,
    GiveBack,
    HeartbeatReply,
    HeartbeatRequest,
    JobPut,
    Notices,
    Outcome,
    PutJob,
    RetryLater,
    Settle,
    Store,
    Update,
    Updated,
)
from fencepost.store.memory import MemoryStore
from fencepost.testing.conformance import NOON, HandClock, Harness, StoreConformance
from tests.protocol.comparison import Mismatch, compare, differences

SEEDS = 40
STEPS = 200

NOT_DECIDED_HERE = {
    Reason.TIMED_OUT,
    Reason.RAISED,
    Reason.DRAIN_LIMIT,
    Reason.EFFECT_COMMITTED,
    Reason.NOT_RECORDED,
    Reason.UNREADABLE,
}
"""Reasons that a replica gives when it settles, and what becomes of damaged rows: here none is damaged."""


def harness_of(make: type[MemoryStore] = MemoryStore) -> Harness:
    clock = HandClock()
    return Harness.with_clock(make(clock), clock)


@pytest.mark.slow
async def test_the_memory_store_agrees_with_the_model_and_everything_is_reached() -> None:
    tally: Counter[str] = Counter()
    for seed in range(SEEDS):
        tally += await compare(harness_of(), seed, STEPS)
    operations = Store.__abstractmethods__ | Notices.__abstractmethods__
    assert operations - {"open", "close", "wait", "notices"} <= tally.keys()
    reasons = {key.partition(": ")[2] for key in tally}
    assert {reason.value for reason in Reason} - NOT_DECIDED_HERE <= reasons
    assert {state.value for state in State} <= {key.partition(":")[0] for key in tally}
    for outcome in set(get_args(Outcome)) - {"unreadable"}:
        assert tally[outcome], outcome
    events = ("plan refused", "stretch", "swept", "accepted", "refused", "pruned", "step back", "active")
    for event in (*events, "data loss"):
        assert tally[event], event


async def test_the_same_seed_does_the_same_again() -> None:
    assert await compare(harness_of(), 5, 100) == await compare(harness_of(), 5, 100)


class ForgetsWhenToWake(MemoryStore):
    async def claim_fires(self, request: ClaimRequest) -> Claimed:
        return replace(await super().claim_fires(request), wake_in=None)


class AcceptsAnything(MemoryStore):
    async def update_claims(self, replica: str, updates: Sequence[Update]) -> Updated:
        return replace(await super().update_claims(replica, updates), accepted=(True,) * len(updates))


class CountsWhatWasGivenBack(MemoryStore):
    """The reply is right, the row is not."""

    async def update_claims(self, replica: str, updates: Sequence[Update]) -> Updated:
        wrong = [RetryLater(u.key, u.token, 0.0) if isinstance(u, GiveBack) else u for u in updates]
        return await super().update_claims(replica, wrong)


class LosesTheReason(MemoryStore):
    async def update_claims(self, replica: str, updates: Sequence[Update]) -> Updated:
        return await super().update_claims(
            replica, [replace(u, reason=None) if isinstance(u, Settle) else u for u in updates]
        )


class SortsTheWrongWay(MemoryStore):
    async def find_fires(self, query: FireQuery) -> tuple[FireRecord, ...]:
        return (await super().find_fires(query))[::-1]


class ListensToDelayedBeats(MemoryStore):
    _number = 1000

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply:
        self._number += 1
        return await super().heartbeat(replace(request, number=self._number))


class RemovesWhateverTheVersion(MemoryStore):
    async def change_job(self, change: ChangeJob) -> JobRecord | None:
        return await super().change_job(replace(change, version=None))


class TakesWhatIsAskedForAsDeclared(MemoryStore):
    async def put_jobs(self, jobs: Sequence[PutJob]) -> tuple[JobPut, ...]:
        return await super().put_jobs([replace(put, chosen=False) for put in jobs])


class ForgetsToPrune(MemoryStore):
    async def prune(self, keep_seconds: float) -> int:
        return 0


class Breaks(MemoryStore):
    async def history(self, job_id: str):
        raise OSError("disk")


@pytest.mark.parametrize(
    "broken",
    [
        ForgetsWhenToWake,
        AcceptsAnything,
        CountsWhatWasGivenBack,
        LosesTheReason,
        SortsTheWrongWay,
        ListensToDelayedBeats,
        RemovesWhateverTheVersion,
        TakesWhatIsAskedForAsDeclared,
        ForgetsToPrune,
        Breaks,
    ],
)
async def test_it_notices_a_broken_store(broken: type[MemoryStore]) -> None:
    async def some_seeds() -> None:
        for seed in range(100, 110):
            await compare(harness_of(broken), seed, STEPS)

    with pytest.raises(Mismatch) as noticed:
        await some_seeds()
    message = str(noticed.value)
    assert message.startswith("seed 10")
    assert "operations:\n     0 " in message
    assert "\nmodel: " in message
    assert "\nstore: " in message


async def test_it_needs_a_clock_that_can_be_read() -> None:
    with pytest.raises(ValueError, match="cannot read its store's time"):
        await compare(replace(harness_of(), moment=None), 1)


def row_of(**fields: Any) -> FireRecord:
    return FireRecord("key", "job", NOON, **fields)


@pytest.mark.parametrize(
    ("expected", "answered", "difference"),
    [
        (1.0, 1.0004, None),
        (1.0, 1.01, "reply is 1.01, not 1.0"),
        (None, 0.0, "reply is 0.0, not None"),
        (State.RUNNING, "running", "reply is 'running', not <State.RUNNING: 'running'>"),
        ((1, 2), (1, 3), "reply[1] is 3, not 2"),
        ((1,), (1, 2), "reply is (1, 2), not (1,)"),
        ({"a": {"b": 1}}, {"a": {"b": True}}, "reply['a']['b'] is True, not 1"),
        ({"a": 1}, {}, "reply is {}, not {'a': 1}"),
        (Claimed(wake_in=1.0), Claimed(wake_in=None), "reply.wake_in is None, not 1.0"),
        (row_of(reason=Reason.PAUSED), row_of(reason="paused"), None),
        (row_of(reason=Reason.PAUSED), row_of(reason="pause"), "reply.reason is 'pause', not 'paused'"),
        (
            row_of(state=State.LOST),
            row_of(state="lost"),
            "reply.state is 'lost', not <State.LOST: 'lost'>",
        ),
        (
            Claimed(),
            None,
            "reply is None, not Claimed(claims=(), closed=(), wake_in=None, steps=0, closed_now={}, ahead=())",
        ),
    ],
)
def test_what_counts_as_a_difference(expected: object, answered: object, difference: str | None) -> None:
    assert next(differences(expected, answered, "reply"), None) == difference


def test_no_chapter_of_the_suite_hides_what_another_defines() -> None:
    names = Counter(name for chapter in StoreConformance.__bases__ for name in vars(chapter))
    doubled = [name for name, count in names.items() if count > 1 and not name.startswith("__")]
    assert doubled == []
