"""What the dashboard shows, on stores that count and sample in the database, and on one that does not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from fencepost.insight.pictures import sampling, tallies
from fencepost.insight.pictures.counting import read_and_counted
from fencepost.insight.pictures.lanes import Lane, Lanes, lanes
from fencepost.insight.pictures.load import load_map
from fencepost.insight.pictures.overview import overview
from fencepost.insight.pictures.replicas import cluster_lanes, terms
from fencepost.insight.pictures.strips import strips
from fencepost.insight.pictures.summary import summary
from fencepost.insight.pictures.tallies import HOUR, MINUTE, counted
from fencepost.insight.pictures.trends import heat_map, trend
from fencepost.insight.pictures.window import window_of
from fencepost.insight.reader import Reader
from fencepost.insight.visible import VisibleStore
from fencepost.model import State, fire_key
from fencepost.model.triggers import every
from fencepost.store.base import FireQuery, JobPage, Watched
from fencepost.store.counting import CountQuery, SlimQuery
from fencepost.store.memory import MemoryStore
from fencepost.store.mysql import MysqlStore
from fencepost.store.sqlite import SqliteStore
from fencepost.testing.conformance import NOON, HandClock, Harness
from tests.store.on_postgres import a_harness
from tests.store.pictures import FAILING, ROUNDS, Looking, a_ledger

TEN_MINUTES = timedelta(minutes=10)
BUSY = ROUNDS * 10


@pytest.fixture(params=["memory", "sqlite", "postgres", pytest.param("mysql", marks=pytest.mark.slow)])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    clock = HandClock()
    async with AsyncExitStack() as stack:
        if request.param == "postgres":
            server = request.getfixturevalue("postgres_server")
            yield await stack.enter_async_context(a_harness(server.url, True))
            return
        if request.param == "mysql":
            mysql = MysqlStore(request.getfixturevalue("mysql_url"), clock=clock)
            await mysql.open()
            stack.push_async_callback(mysql.close)
            yield Harness.with_clock(mysql, clock)
            return
        store = (
            MemoryStore(clock) if request.param == "memory" else SqliteStore(tmp_path / "a.db", clock=clock)
        )
        await store.open()
        stack.push_async_callback(store.close)
        yield Harness.with_clock(store, clock)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The busy job has more fires than are drawn one by one; and a busy machine has time to count them."""
    monkeypatch.setattr(sampling, "FEW", 40)
    monkeypatch.setattr(tallies, "BUDGET", 60.0)


@pytest.fixture
async def looking(harness: Harness) -> Looking:
    return await a_ledger(harness)


def reader_of(looking: Looking) -> Reader:
    return cast(Reader, looking)


async def drawn(looking: Looking, span: timedelta = TEN_MINUTES, **how: Any) -> Lanes:
    now = (await looking.cluster()).now
    window = window_of(now, span, **how)
    return await lanes(reader_of(looking), VisibleStore(looking.store), window, JobPage(50))


async def lane_of(looking: Looking, id: str, **how: Any) -> Lane:
    return next(lane for lane in (await drawn(looking, **how)).items if lane.job_id == id)


async def test_counts_are_those_of_the_fires_read_one_by_one(looking: Looking) -> None:
    now = (await looking.cluster()).now
    for job_id in (None, "busy", "paused"):
        for unit, since in ((MINUTE, NOON), (HOUR, NOON - 3 * HOUR), (MINUTE, NOON + 2 * MINUTE)):
            args = since, now + datetime.resolution
            found = await counted(reader_of(looking), looking.store, *args, unit, job_id)
            again = await counted(reader_of(looking), looking.store, *args, unit, job_id)
            expected = await read_and_counted(looking.store, *args, unit, job_id)
            assert found.total == again.total == expected.total, (job_id, unit)
            assert {at: states for at, states in found.by_bucket.items() if states} == expected.by_bucket


async def test_what_lies_back_is_counted_once(looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = looking.store.counting
    if counting is None:
        pytest.skip("it does not count")
    asked: list[CountQuery] = []
    real = counting.count_fires

    async def count(query: CountQuery) -> Any:
        asked.append(query)
        return await real(query)

    monkeypatch.setattr(counting, "count_fires", count)
    now = (await looking.cluster()).now
    for _ in range(2):
        asked.clear()
        await counted(reader_of(looking), looking.store, NOON - 10 * MINUTE, now)
    assert asked
    assert all(query.since >= now - timedelta(minutes=2) - MINUTE for query in asked)


async def test_a_run_that_ends_late_is_counted_as_it_ended(harness: Harness) -> None:
    looking = Looking(harness.store)
    fire = await harness.running(overlap="skip")
    for _ in range(2):
        await harness.elapse(200)
        now = (await looking.cluster()).now
        found = await counted(reader_of(looking), harness.store, NOON, now, MINUTE)
        assert found.by_bucket[fire.due_at]["running"] == 1
    await harness.settle(fire)
    found = await counted(reader_of(looking), harness.store, NOON, now, MINUTE)
    assert found.by_bucket[fire.due_at] == {"succeeded": 1}


async def test_a_count_that_takes_long_goes_on_in_the_background(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    if looking.store.counting is None:
        pytest.skip("it does not count")
    monkeypatch.setattr(tallies, "BUDGET", -1.0)
    now = (await looking.cluster()).now
    begin = NOON - 10 * MINUTE
    args = reader_of(looking), looking.store, begin, now + datetime.resolution
    first = await counted(*args)
    assert first.since > begin
    async with asyncio.timeout(60):
        while (found := await counted(*args)).since > begin:
            await asyncio.sleep(0.01)
    assert found.total == (await read_and_counted(looking.store, *args[2:], MINUTE)).total


async def test_a_busy_lane_is_no_longer_than_its_buckets_and_shows_every_failure(looking: Looking) -> None:
    found = await drawn(looking)
    lane = next(lane for lane in found.items if lane.job_id == "busy")
    assert not lane.exact
    buckets = [mark.at for mark in lane.marks]
    assert buckets == sorted(set(buckets))
    assert len(buckets) <= len(list(found.window.buckets()))
    failed = await looking.store.find_fires(FireQuery(job_id="busy", states=(State.FAILED,), limit=1_000))
    assert len(failed) == BUSY // FAILING
    shown = {mark.key for mark in lane.marks if mark.state == "failed"}
    assert shown == {fire.key for fire in failed}
    lines = {mark.error_line for mark in lane.marks if mark.state == "failed" and not mark.more}
    assert lines == {f"ValueError: number {number}" for number in range(4 * FAILING, BUSY + 1, FAILING)}
    # Every bucket between the first fire and now has some.
    assert len(buckets) == (buckets[-1] - buckets[0]) // found.window.width + 1


async def test_a_lane_of_few_fires_has_them_all(looking: Looking) -> None:
    lane = await lane_of(looking, "broken")
    assert lane.exact
    assert sum(mark.count for mark in lane.marks) == ROUNDS
    assert {mark.state for mark in lane.marks} == {"failed"}
    mark = lane.marks[0]
    assert mark.started_at is not None
    assert mark.late_seconds == (mark.started_at - mark.due_at).total_seconds()
    assert mark.replica == "a"
    never = await lane_of(looking, "never")
    assert (never.marks, never.planned, never.exact) == ((), (), True)


async def test_what_began_before_the_window_reaches_into_it(looking: Looking) -> None:
    """The pause has lasted since the beginning, and is one row."""
    now = (await looking.cluster()).now
    lane = await lane_of(looking, "paused", until=now + timedelta(minutes=9, seconds=30))
    [mark] = lane.marks
    assert mark.due_at < mark.at
    assert (mark.state, mark.reason, mark.last_due_at > mark.at) == ("skipped", "paused", True)
    assert {tick.paused for tick in lane.planned} == {True}


async def test_a_fire_each_second_costs_as_many_steps_of_the_store_as_one_an_hour(
    looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = looking.store.counting
    if counting is None:
        pytest.skip("it jumps from bucket to bucket, a step each")
    rows: Counter[str] = Counter()
    real = counting.slim_fires

    async def slim(query: SlimQuery) -> Any:
        found = await real(query)
        rows[query.job_id] += len(found)
        return found

    monkeypatch.setattr(counting, "slim_fires", slim)
    found = await drawn(looking, span=timedelta(days=1))
    assert rows["busy"] <= 40 + 2 * len(list(found.window.buckets()))


async def test_a_lane_that_has_not_changed_is_not_read_again(
    looking: Looking, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    counting = looking.store.counting
    real = looking.store.find_fires if counting is None else counting.slim_fires

    async def find(query: Any) -> Any:
        asked.append(query.job_id)
        return await real(query)

    monkeypatch.setattr(counting or looking.store, real.__name__, find)
    before = await drawn(looking)
    asked.clear()
    assert (await drawn(looking)).items == before.items
    if isinstance(looking.store, MemoryStore):  # the same object, as a store for reading keeps it
        assert {id for id in asked if id} == set()
    await harness.plan()
    await harness.elapse(10)
    for fire in await harness.claims("a", 20):
        await harness.settle(fire)
    after = await lane_of(looking, "broken")
    assert after.marks[-1].state == "succeeded"


async def test_lanes_that_are_followed_are_those_that_are_read_anew(
    looking: Looking, harness: Harness
) -> None:
    """Also while a run lasts, and when the window has moved on by some buckets."""
    ahead = timedelta(minutes=9)
    await drawn(looking, until=await harness.now() + ahead)
    for seconds in (1, 4, 10, 30, 10):
        await harness.plan()
        await harness.elapse(seconds)
        for fire in (await harness.claims("a", 20))[1:]:
            await harness.settle(fire, State.FAILED if fire.job_id == "broken" else State.SUCCEEDED)
        until = await harness.now() + ahead  # so that a minute of the past is seen
        followed = await drawn(looking, until=until)
        anew = await drawn(Looking(harness.store), until=until)
        for lane, other in zip(followed.items, anew.items, strict=True):
            if other.exact:
                assert lane.marks == other.marks, lane.job_id
            assert [(mark.at, mark.state) for mark in lane.marks] == [
                (mark.at, mark.state) for mark in other.marks
            ]
            assert lane.planned == other.planned


async def test_the_overview_says_that_all_is_accounted_for(looking: Looking, harness: Harness) -> None:
    found = await overview(reader_of(looking), looking.store, TEN_MINUTES)
    assert found.verdict == "yes"
    assert found.fates["succeeded"] + found.fates["failed"] == BUSY + ROUNDS
    assert found.due == sum(found.fates.values())
    assert found.sentence.startswith(f"Yes. {found.due} fires were due")
    assert found.lateness.runs > 0
    assert found.leader is not None
    needs = {(need.kind, need.job_id): need for need in found.needs}
    assert needs["failing", "broken"].count == ROUNDS
    assert needs["failing", "broken"].detail.startswith("ValueError: number")
    assert needs["paused", "paused"].action == "resume"
    assert ("failing", "never") not in needs  # it never ran, which is no failure


async def test_the_overview_names_fires_that_no_replica_decides(harness: Harness) -> None:
    await harness.elect("a")
    await harness.define("job", every(minutes=1))
    await harness.fall_due()
    await harness.elapse(60)
    found = await overview(reader_of(Looking(harness.store)), harness.store, TEN_MINUTES)
    assert (found.verdict, found.overdue) == ("no", 1)
    assert "no replica has decided it" in found.sentence


async def test_only_what_may_be_seen_is_counted(looking: Looking) -> None:
    found = await overview(reader_of(looking), looking.store, TEN_MINUTES, lambda id: id == "broken")
    assert found.fates == {"failed": ROUNDS}
    assert {need.job_id for need in found.needs} == {"broken"}
    assert sum(found.jobs.values()) == 1


async def test_a_summary_adds_up(looking: Looking) -> None:
    now = (await looking.cluster()).now
    for bucket in (timedelta(minutes=2), timedelta(seconds=45)):
        found = await summary(
            reader_of(looking), looking.store, NOON, now + datetime.resolution, bucket, "busy"
        )
        assert sum(sum(each.states.values()) for each in found.items) == sum(found.total.values()) == BUSY
        assert all(not (each.at - NOON) % bucket or bucket == timedelta(seconds=45) for each in found.items)


async def test_trend_heat_map_and_strip_of_a_job(looking: Looking) -> None:
    reader, store = reader_of(looking), looking.store
    found = await trend(reader, store, "broken")
    assert [point.state for point in found.points] == ["failed"] * ROUNDS
    assert sum(number for _, number in found.histogram) == ROUNDS
    days = await heat_map(reader, store, "busy", UTC)
    assert len(days.days) == 90
    assert days.days[-1].states == {"succeeded": BUSY - BUSY // FAILING, "failed": BUSY // FAILING}
    entries = (await looking.recent()).entries
    strip = await strips(reader, store, entries)
    assert strip["never"] == ()
    assert [each.state for each in strip["broken"]] == ["failed"] * ROUNDS
    assert strip["broken"][-1].due_at > strip["broken"][0].due_at


async def test_the_load_of_a_week(looking: Looking) -> None:
    found = await load_map(reader_of(looking), looking.store, UTC)
    assert (found.planned_jobs, found.jobs) == (4, 4)
    week = 7 * 24 * 3600
    assert sum(cell.count for cell in found.planned) == pytest.approx(
        week * (1 + 1 / 10 + 1 / 3600 + 1 / 5), rel=0.01
    )
    assert sum(cell.count for cell in found.failures) == ROUNDS + BUSY // FAILING
    noon = next(cell for cell in found.failures if (cell.weekday, cell.hour) == (NOON.weekday(), 12))
    assert noon.count == ROUNDS + BUSY // FAILING


async def test_who_led_when(harness: Harness) -> None:
    looking = Looking(harness.store)
    term = await harness.elect("a")
    await harness.elapse(30)
    resigned = await harness.now()
    await harness.store.leave("a")
    await harness.advance(20)
    began = await harness.now()
    await harness.elect("b")
    await harness.advance(100)
    lease = (await harness.store.roster()).leader
    await harness.join("c")
    watched = Watched(lease.term, lease.renewals, 60.0)
    assert (await harness.campaign("c", watched)).holder == "c"
    taken = await harness.now()
    found = await terms(reader_of(looking), harness.store)
    assert [(each.number, each.replica, each.since, each.until) for each in found] == [
        (term, "a", NOON, resigned),
        (term + 1, "b", began, taken),
        (term + 2, "c", taken, None),
    ]
    assert await harness.store.history_since(NOON) == ()


async def test_lanes_of_replicas(looking: Looking) -> None:
    now = (await looking.cluster()).now
    found = await cluster_lanes(reader_of(looking), looking.store, window_of(now, TEN_MINUTES))
    [lane] = found.lanes
    assert lane.replica == "a"
    assert sum(stint.count for stint in lane.stints) == BUSY + ROUNDS
    assert [term.replica for term in found.terms] == ["a"]


async def test_a_key_of_a_slim_fire_finds_it(harness: Harness) -> None:
    if harness.store.counting is None:
        pytest.skip("it has none")
    await harness.join("a")
    await harness.define("job", every(minutes=1))
    await harness.trigger("job", "by-hand")
    await harness.settle(await harness.claim("a"))
    await harness.fall_due()
    await harness.settle(await harness.claim("a"))
    found = await harness.store.counting.slim_fires(SlimQuery(NOON, NOON + HOUR, 10, "job"))
    keys = [fire.key for fire in found]
    assert keys == [fire_key("job", NOON + MINUTE), "job!by-hand"]
    for fire in found:
        whole = await harness.fire(fire.key)
        for name in (
            "due_at",
            "state",
            "scheduled",
            "count",
            "last_due_at",
            "replica",
            "attempt",
            "started_at",
        ):
            assert getattr(fire, name) == getattr(whole, name), name
