"""One row of every kind is made unreadable in every store: all other jobs go on, before and after a restart, nothing
runs twice, and the job is named, until it is removed."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta

import pytest

from fencepost.cli import outcome
from fencepost.insight.doctor.finding import Level
from fencepost.insight.doctor.unreadable import unreadable
from fencepost.insight.views.overview import read_overview
from fencepost.model import FireRecord, Reason, State
from fencepost.model.triggers import every
from fencepost.store.base import (
    Campaign,
    ChangeJob,
    FireQuery,
    GiveBack,
    NewFire,
    RetryLater,
    Seen,
    Settle,
    Store,
    Suspect,
    Watched,
)
from fencepost.store.unreadable import RowUnreadable
from fencepost.testing.conformance import Harness
from fencepost.testing.conformance.loss import remember_more
from tests.store.unreadable import BAD, FOREIGN, KINDS, Place

GOOD = ("good1", "good2", "good3")
SETS_ASIDE = ("definition", "state", "live fire", *FOREIGN)
STORES = ("sqlite", "file", "redis", "postgres", "mysql")
EVERYWHERE = ("definition", "live fire")
"""Kinds that `make test` damages in every store; the other pairs run with `make test-all`."""

PAIRS = [
    pytest.param(
        store,
        kind,
        marks=[] if store == "sqlite" or kind in EVERYWHERE else pytest.mark.slow,
        id=f"{store}-{kind}",
    )
    for store in STORES
    for kind in KINDS
]
SQLITE_FIRST = ["sqlite", *(pytest.param(store, marks=pytest.mark.slow) for store in STORES[1:])]


class Rounds(Harness):
    async def update_by(self, name: str, fire: FireRecord) -> bool:
        return await self.update(Settle(fire.key, fire.token, State.SUCCEEDED), name)


async def begun(harness: Rounds, kind: str) -> FireRecord:
    """Replica `a` leads. Of the job to be damaged one fire has run, or is running."""
    await harness.elect("a", "work", "play")
    for id in GOOD:
        await harness.define(id, every(minutes=1))
    await harness.define(BAD, every(minutes=1), target="play")
    await harness.fall_due()
    fires = {fire.job_id: fire for fire in await harness.claims("a")}
    assert set(fires) == {*GOOD, BAD}
    for fire in fires.values():
        if fire.job_id != BAD or kind != "live fire":
            assert await harness.settle(fire)
    return fires[BAD]


async def round_of(harness: Rounds, name: str) -> set[str]:
    """A minute passes: the jobs of which something ran. Keys that ran before do not."""
    before = {fire.key: fire.token for fire in await harness.store.find_fires(FireQuery(limit=1000))}
    await harness.elapse(30)
    await harness.plan()
    await harness.elapse(30)
    await harness.plan()
    ran = [claim.fire for claim in (await harness.ask(name, room=10)).claims]
    for fire in ran:
        assert before.get(fire.key, 0) == 0, f"{fire.key} was claimed a second time"
        assert await harness.update_by(name, fire)
    return {fire.job_id for fire in ran}


def harness_of(place: Place, store: Store) -> Rounds:
    found = Rounds.with_clock(store, place.clock)
    assert isinstance(found, Rounds)
    return found


async def is_named(store: Store, kind: str) -> None:
    """In what `status` shows, and in what `doctor` finds."""
    shown, _ = await read_overview(store, "")
    kinds = {
        "definition": "job",
        "state": "job",
        "live fire": "fire",
        "ended fire": "fire",
        **dict.fromkeys(FOREIGN, "job"),
    }
    rows = [row for row in store.unreadable.rows if row.kind == kinds.get(kind, kind)]
    assert rows, f"{kind} is not among {store.unreadable.rows}"
    if kind in ("replica", "lease"):
        return
    [job] = [job for job in shown["jobs"] if job["id"] == BAD]
    assert "unreadable" in job["states"]
    assert (job["state"] == "unreadable") == (kind in SETS_ASIDE)
    assert [each["id"] for each in shown["jobs"] if each["unreadable"]] == [BAD]
    findings = [finding for finding in unreadable(store.unreadable.rows) if finding.level is not Level.OK]
    assert any(
        (BAD if kind != "target" else "play") in finding.what and finding.remedy for finding in findings
    )


@pytest.mark.parametrize(("store", "kind"), PAIRS)
async def test_one_row_stops_one_job(place: Place, kind: str) -> None:
    async with place.opened() as store:
        harness = harness_of(place, store)
        run = await begun(harness, kind)
        place.damage(kind)
        if kind not in ("replica", "lease"):
            await is_named(store, kind)
        goes_on = {*GOOD} if kind in SETS_ASIDE else {*GOOD, BAD}
        for _ in range(2):
            await harness.campaign("a")
            assert await round_of(harness, "a") == goes_on
        if kind == "live fire":
            assert not await harness.settle(run)
    # Everybody is gone, and another replica starts.
    async with place.opened() as store:
        harness = harness_of(place, store)
        await place.clock.advance(10)
        if kind not in ("replica", "lease", "target"):
            await is_named(store, kind)
        await harness.join("b", "work", "play")
        swept = await bury(harness)
        assert {fire.key for fire in swept} <= {run.key}
        for _ in range(2):
            assert await round_of(harness, "b") >= set(GOOD)
        assert (await harness.job(GOOD[0])).token > 3


@pytest.mark.parametrize("store", STORES)
async def test_what_waited_for_a_run_goes_on_when_its_job_can_be_read_again(place: Place) -> None:
    """Also after a restart in between: that it must be decided is stored."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.elect("a", "play")
        await harness.define(BAD, target="play")
        await harness.trigger(BAD, "first")
        first = await harness.claim("a")
        await harness.trigger(BAD, "second")
        assert await harness.claims("a") == []
        place.damage("definition")
        assert await harness.settle(first)
        assert await harness.claims("a") == []
    place.repair()
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.join("b", "play")
        assert [fire.key for fire in await harness.claims("b")] == [f"{BAD}!second"]


@pytest.mark.parametrize("store", SQLITE_FIRST)
async def test_what_it_ran_when_data_was_lost_is_not_run_again(place: Place) -> None:
    """Whether it may run twice is in the row that cannot be read."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.elect("a", "play")
        await harness.define(BAD, target="play", after_crash="rerun")
        await harness.trigger(BAD, "first")
        fire = await harness.claim("a")
        place.damage("definition")
        lease = (await remember_more(harness, steps=1_000_000)).leader
        assert lease.era.standing == "lost"
        found = await harness.fire(fire.key)
        assert (found.state, found.reason) == (State.LOST, Reason.DATA_LOSS)
        assert not await harness.update(GiveBack(fire.key, fire.token))


@pytest.mark.parametrize("store", SQLITE_FIRST)
async def test_what_waited_to_be_run_again_when_data_was_lost_may_have_run(place: Place) -> None:
    """Also if its row could not be read just then, and can be later."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.elect("a", "play")
        await harness.define(BAD, target="play")
        await harness.trigger(BAD, "first")
        fire = await harness.claim("a")
        assert await harness.update(RetryLater(fire.key, fire.token, 1.0))
        place.damage("live fire")
        assert await store.find_fires(FireQuery(job_id=BAD)) == ()
        assert (await remember_more(harness, steps=1_000_000)).leader.era.standing == "lost"
        place.repair()
        assert (await harness.fire(fire.key)).state is State.WAITING
        await harness.elapse(2)
        assert await harness.claims("a") == []
        found = await harness.fire(fire.key)
        assert (found.state, found.reason) == (State.LOST, Reason.DATA_LOSS)
        last = (await harness.job(BAD)).last_run
        assert last is not None
        assert last.key == fire.key
        await harness.trigger(BAD, "second")
        assert (await harness.claim("a")).key == f"{BAD}!second"


@pytest.mark.parametrize("store", SQLITE_FIRST)
@pytest.mark.parametrize("kind", EVERYWHERE)
async def test_it_is_not_removed_on_a_condition(place: Place, kind: str) -> None:
    """That nobody declares it, or that it is as it was: what protects its fires stays until a person says otherwise."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        await begun(harness, kind)
        place.damage(kind)
        for change in (
            ChangeJob(BAD, "remove", if_undeclared=True),
            ChangeJob(BAD, "remove", version=7),
        ):
            assert await store.change_job(change) is None
            assert await round_of(harness, "a") == set(GOOD)
        await is_named(store, kind)


@pytest.mark.parametrize("store", SQLITE_FIRST)
async def test_what_a_run_keeps_is_never_dropped(place: Place) -> None:
    """What is kept for the next run and the outcome are one write: neither without the other."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.elect("a", "play")
        await harness.define(BAD, target="play", overlap="allow(2)")
        await harness.define(GOOD[0], target="play")
        for id, name in ((BAD, "first"), (BAD, "second"), (GOOD[0], "first")):
            await harness.trigger(id, name)
        first, second, good = sorted(await harness.claims("a"), key=lambda fire: fire.key)
        keeps = Settle(first.key, first.token, State.SUCCEEDED, keep={"etag": "a"})
        assert await harness.update(keeps)
        place.damage("definition")
        assert await harness.update(keeps), "its reply was lost, and it is told once more"
        lost = Settle(second.key, second.token, State.SUCCEEDED, keep={"etag": "b"})
        with pytest.raises(RowUnreadable, match=f"keeps.*jobs rm {BAD}"):
            await store.update_claims("a", [Settle(good.key, good.token, State.SUCCEEDED), lost])
        assert (await harness.fire(second.key)).state is State.RUNNING
        assert await harness.update(Settle(second.key, second.token, State.FAILED, Reason.NOT_RECORDED))
        assert await harness.settle(good)
        place.repair()
        assert (await harness.job(BAD)).kept == {"etag": "a"}


@pytest.mark.parametrize("store", SQLITE_FIRST)
async def test_it_is_given_up_with_its_task_and_planned_again_with_it(place: Place) -> None:
    """Although it cannot be read when nobody knows its task any more, nor when somebody does."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        term = await harness.elect("a", "work")
        await harness.join("b", "play")
        await harness.define(BAD, every(minutes=1), target="play")
        await harness.plan()
        place.damage("definition")
        assert await store.jobs([BAD]) == ()
        await store.leave("b")
        for _ in range(2):
            assert await store.sweep("a", term, []) is not None
            await harness.elapse(3700)
            await harness.campaign("a")
        assert await store.sweep("a", term, []) is not None
        place.repair()
        assert len(await store.jobs([BAD])) == 1
        await harness.plan()
        assert {fire.state for fire in await harness.fires(BAD)} == {State.MISSED}
        assert await harness.plans() == [], "the planner comes back to it for ever"
        place.damage("definition")
        await harness.join("c", "play")
        place.repair()
        assert len(await store.jobs([BAD])) == 1
        await harness.claims("c")
        await harness.fall_due()
        assert [fire.job_id for fire in await harness.claims("c")] == [BAD]


async def bury(harness: Harness) -> tuple[FireRecord, ...]:
    """`b` takes over from `a`, which is dead."""
    lease = (await harness.heartbeat("b", campaign=Campaign(30.0))).leader
    if lease.holder != "b":
        watched = Watched(lease.term, lease.renewals, 0.0, gone=True)
        lease = (await harness.heartbeat("b", campaign=Campaign(30.0, watched))).leader
    assert lease.holder == "b"
    swept = await harness.store.sweep("b", lease.term, [Suspect("a", 0, 0.0, dead=True)])
    assert swept is not None
    return swept.settled


@pytest.mark.parametrize(
    ("store", "kind"), [pair for pair in PAIRS if pair.values[1] in ("definition", "state", "live fire")]
)
async def test_it_is_refused_until_it_is_removed_and_begins_anew(place: Place, kind: str) -> None:
    async with place.opened() as store:
        harness = harness_of(place, store)
        run = await begun(harness, kind)
        place.damage(kind)
        assert await round_of(harness, "a") == set(GOOD)
        assert (await harness.define(BAD, every(minutes=2), target="play")).outcome == "unreadable"
        with pytest.raises(RowUnreadable, match=f"jobs rm {BAD}"):
            await store.add_fire(NewFire(f"{BAD}!now", BAD))
        with pytest.raises(RowUnreadable, match=f"jobs rm {BAD}"):
            await store.change_job(ChangeJob(BAD, "pause"))
        removed = await store.change_job(ChangeJob(BAD, "remove"))
        assert removed is not None
        assert removed.removed_at
        assert removed.token >= run.token
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.heartbeat("a", number=100)
        harness._heartbeats["a"], harness._claims["a"] = 100, 100
        assert not store.unreadable.aside
        if kind == "live fire":
            assert (await harness.fire(run.key)).state is State.LOST
            assert not await harness.settle(run)
        assert await store.jobs([BAD]) == ()
        assert (await harness.define(BAD, every(minutes=1), target="play")).outcome == "changed"
        assert BAD in await round_of(harness, "a")
        fresh = (await harness.fires(BAD))[-1]
        assert max(fire.token for fire in await harness.fires(BAD)) > run.token
        assert fresh.due_at > run.due_at


@pytest.mark.parametrize(
    "store", ["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in STORES[1:])]
)
@pytest.mark.parametrize("kind", [*FOREIGN])
async def test_a_calendar_that_is_not_known_here_is_left_to_hosts_that_know_it(
    place: Place, kind: str
) -> None:
    """Not planned, claimed or overwritten; but it can be paused and removed, and keeps its trigger."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        await begun(harness, kind)
        place.damage(kind)
        assert await round_of(harness, "a") == set(GOOD)
        assert (await harness.define(BAD, every(minutes=2), target="play")).outcome == "unreadable"
        assert await store.change_job(ChangeJob(BAD, "pause"))
        record = await harness.job(BAD)
        assert record.job.trigger is not None
        assert record.job.trigger.to_json() == FOREIGN[kind]
        assert record.pauses
        [row] = store.unreadable.rows
        assert row.foreign
        assert "hosts that know it go on" in row.remedy
        assert all(fire.state is not State.RUNNING for fire in await harness.fires(BAD))
        await harness.remove(BAD)
        assert await store.jobs([BAD]) == ()


@pytest.mark.parametrize(
    "store", ["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in STORES[1:])]
)
async def test_a_lease_that_cannot_be_read_is_taken_in_a_higher_term(place: Place) -> None:
    async with place.opened() as store:
        harness = harness_of(place, store)
        term = await harness.elect("a", "work")
        fire = await harness.running("job")
        place.damage("lease")
        await harness.join("b", "work")
        await harness.campaign("b")
        lease = await harness.campaign("b")
        assert lease.holder == "b"
        assert lease.term > term
        assert await store.sweep("a", term, []) is None
        assert (await harness.fire(fire.key)).state is State.RUNNING
        assert await harness.settle(fire)


@pytest.mark.parametrize(
    "store", ["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in STORES[1:])]
)
async def test_a_presence_that_cannot_be_read_is_written_anew_or_expires(place: Place) -> None:
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.join("a", "work")
        fire = await harness.running("job")
        term = await harness.elect("b", "nothing")
        place.damage("replica")
        roster = (await store.roster()).replicas
        assert [replica.id for replica in roster] == ["a", "b"]
        reply = await harness.heartbeat("a", claim_no=1)
        assert reply.known
        assert [claim.key for claim in reply.held] == [fire.key]
        assert await harness.settle(fire)
        place.damage("replica")
        await place.clock.advance(100)
        a = next(replica for replica in (await store.roster()).replicas if replica.id == "a")
        swept = await store.sweep("b", term, [Suspect("a", a.renewals, 1.5 * a.ttl)])
        assert swept is not None
        assert swept.expired == ("a",)
        assert timedelta(seconds=a.ttl) <= timedelta(minutes=5)


@pytest.mark.parametrize("store", SQLITE_FIRST)
async def test_a_delayed_beat_that_writes_a_presence_anew_is_no_sign_of_a_loss(place: Place) -> None:
    """Its replica was told of more since. All runs would end as lost."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        reply = await harness.join("a", "work")
        for _ in range(10):
            reply = await harness.heartbeat("a", seen=Seen(harness.era.incarnation, steps=reply.steps))
        fire = await harness.running("job")
        place.damage("replica")
        await harness.heartbeat("a", number=3, seen=Seen(harness.era.incarnation, steps=1))
        told = await remember_more(harness, steps=reply.steps)
        assert told.known
        assert told.leader.era.standing == "settled"
        assert [claim.key for claim in told.held] == [fire.key]
        assert (await remember_more(harness, steps=told.steps)).leader.era.standing == "settled"


@pytest.mark.parametrize("store", SQLITE_FIRST)
async def test_a_presence_that_is_damaged_twice_counts_on(place: Place) -> None:
    """By heartbeats of which the second is the older one."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.join("a", "work")
        place.damage("replica")
        told = await harness.heartbeat("a", number=30, seen=Seen(harness.era.incarnation, steps=20))
        await place.clock.advance(1)
        place.damage("replica")
        await harness.heartbeat("a", number=3, seen=Seen(harness.era.incarnation, steps=1))
        again = await remember_more(harness, steps=told.steps)
        assert again.known
        assert again.leader.era.standing == "settled"


@pytest.mark.parametrize(
    "store", ["sqlite", *(pytest.param(name, marks=pytest.mark.slow) for name in STORES[1:])]
)
@pytest.mark.parametrize("kind", ["definition", "live fire"])
def test_the_commands_name_it_and_remove_it(
    place: Place, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_STORE", place.url)

    async def prepare() -> None:
        async with place.opened() as store:
            await begun(harness_of(place, store), kind)

    def said(*words: str) -> tuple[int, str]:
        code = outcome(list(words))
        return code, capsys.readouterr().out

    asyncio.run(prepare())
    place.damage(kind)
    code, text = said("status")
    assert code == 0
    assert re.search(rf"{BAD} .*unreadable", text)
    assert f"fencepost jobs rm {BAD}" in text.replace("\n", " ")
    code, text = said("doctor", "--json")
    assert code == 1
    findings = [each for each in json.loads(text)["findings"] if each["section"] == "unreadable"]
    assert [BAD in each["what"] for each in findings] == [True]
    code, text = said("audit", "--since", "2026-11-15T11:00:00Z", "--json")
    assert code == 1
    assert {row["job_id"] for row in json.loads(text)["unreadable"]} == {BAD}
    assert said("pause", BAD)[0] == 78
    assert said("jobs", "rm", BAD)[0] == 0
    code, text = said("status", "--json")
    assert [job["id"] for job in json.loads(text)["jobs"]] == [*GOOD]
    assert json.loads(text)["unreadable"] == []
