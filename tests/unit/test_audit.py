"""The audit in virtual time: windows, downtimes, changes, and what happens while it reads."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import tracemalloc
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest

from fencepost import Retry, Scheduler, UsageError, at, cron, every
from fencepost.clock import moment_of
from fencepost.insight.audit import Kind, audit, pages
from fencepost.insight.audit.claims import TokensSeen
from fencepost.insight.audit.zones import tzdata_version
from fencepost.model import Job, State, changed
from fencepost.model.periods import JobCalendar, pauses_of
from fencepost.store.base import PutJob
from fencepost.store.memory import MemoryStore
from fencepost.store.rules.data_loss import restarted
from fencepost.store.sqlite import SqliteStore
from fencepost.testing import virtual
from fencepost.testing.conformance.harness import NOON, HandClock, Harness
from fencepost.testing.virtual import WorldClock
from fencepost.testing.world import EPOCH
from tests.protocol.calendar import due_between
from tests.unit.apps.ledgers import START, fill

ZONES = ("Europe/Zurich", "Australia/Lord_Howe")


def minute(number: float) -> datetime:
    return EPOCH + timedelta(minutes=number)


def minutely(**policies) -> Scheduler:
    scheduler = Scheduler("memory://")
    scheduler.job(every(minutes=1), id="job", **policies)(lambda: None)
    return scheduler


def found(report) -> dict[Kind, int]:
    return dict(report.found)


# Clean


@pytest.mark.parametrize(
    ("start", "days"),
    [
        pytest.param(datetime(2026, 3, 6, tzinfo=UTC), 60, id="spring"),
        pytest.param(datetime(2026, 1, 1, tzinfo=UTC), 365, id="a year", marks=pytest.mark.slow),
    ],
)
def test_changes_of_the_clock_are_accounted_for(start, days):
    scheduler = Scheduler("memory://")
    for zone in ZONES:
        scheduler.job(cron("30 2 * * *", tz=zone), id=zone.rpartition("/")[2])(lambda: None)
    scheduler.job(cron("0 */8 * * *", tz=ZONES[0]), id="eight")(lambda: None)
    with virtual(scheduler, start=start) as t:
        t.advance(days=days)
        report, until = t.audit(), t.now
    assert report.clean, report.findings
    due = [due_between(job.trigger.to_json(), start, until) for job in scheduler.jobs.values()]
    assert report.expected == report.ran == sum(map(len, due)) > 4.9 * days
    assert report.tzdata == tzdata_version()


def test_downtimes_pauses_changes_retries_and_removals_are_accounted_for():
    scheduler = minutely(retry=Retry(attempts=2, first=10, jitter=0))
    scheduler.job(every(minutes=5), id="failing", retry=Retry(attempts=3, first=5))(lambda: 1 / 0)
    scheduler.job(every(seconds=20), id="slow", overlap="queue")(lambda: asyncio.sleep(50))
    scheduler.task(lambda: None, id="by_hand")
    with virtual(scheduler) as t:
        t.advance(minutes=10)
        t.pause("job", until=minute(15))
        t.trigger("by_hand")
        t.advance(minutes=20)
        t.stop()
        t.advance(hours=3)
        t.start()
        t.advance(minutes=5)
        t.do(scheduler.add("by_hand", every(minutes=7), id="job2"))
        t.advance(minutes=10)
        t.do(scheduler.add("by_hand", every(minutes=2), id="job2", replace=True))
        t.advance(minutes=10)
        t.do(scheduler.remove("failing"))
        t.advance(minutes=10)
        report = t.audit()
        rows = t.fires()
    assert report.clean, report.findings
    scheduled = [fire for fire in rows if fire.scheduled]
    assert report.expected == sum(fire.count for fire in scheduled) > 500
    assert report.manual == len(rows) - len(scheduled) == 1
    assert {state for state, count in report.states.items() if count} >= {
        State.SUCCEEDED,
        State.FAILED,
        State.SKIPPED,
        State.MISSED,
    }


def test_calendars_follow_the_recorded_definitions():
    clock, triggers = (
        HandClock(),
        [every(minutes=2, anchor=NOON), every(minutes=3, anchor=NOON), cron("*/4 * * * *")],
    )
    store = MemoryStore(clock)

    async def story():
        for trigger in triggers:
            await store.put_jobs([PutJob(Job("job", "work", trigger))])
            await clock.advance(12 * 60)
        return await store.history("job")

    history = asyncio.run(story())
    calendar, end = JobCalendar(history), NOON + timedelta(minutes=36)
    expected = [
        due
        for number, trigger in enumerate(triggers)
        for due in due_between(
            trigger.to_json(),
            NOON + timedelta(minutes=12 * number),
            NOON + timedelta(minutes=12 * number + 12),
        )
    ]
    fires = list(takewhile(lambda due: due <= end, calendar.after(NOON)))
    assert fires == expected
    assert calendar.count(fires[0], fires[-1]) == len(fires)
    assert [calendar.has(due) for due in (fires[0], fires[-1], end)] == [True, True, True]
    assert not calendar.has(NOON + timedelta(minutes=13))


# Windows


@pytest.mark.parametrize(
    ("since", "until"), [(0, 30), (5, 90), (40, 50), (40, 300), (12.5, 13.5), (130, 140)]
)
def test_a_window_may_begin_and_end_anywhere(since, until):
    """Down from 12:10 to 14:00, which is one row."""
    with virtual(minutely()) as t:
        t.advance(minutes=10, seconds=30)
        t.stop()
        t.advance_to(minute(120))
        t.start()
        t.advance(hours=1)
        report = t.do(audit(t.store, since=minute(since), until=minute(until)))
    assert report.clean, report.findings
    assert report.expected == len([m for m in range(1, 181) if since <= m < until])
    assert report.expected == report.ran + report.states[State.MISSED]


def test_what_is_to_come_is_not_expected():
    with virtual(minutely()) as t:
        t.advance(minutes=10, seconds=30)
        report = t.do(audit(t.store, until=minute(1000)))
    assert (report.expected, report.until) == (10, t.now)


def test_a_window_without_anything_in_it_is_refused():
    with virtual(minutely()) as t:
        t.advance(minutes=10)
        for since, until in ((5, 5), (9, 3), (100, 200)):
            with pytest.raises(UsageError, match="nothing lies between"):
                t.do(audit(t.store, since=minute(since), until=minute(until)))


def test_only_what_the_ledger_keeps_is_expected():
    with virtual(minutely()) as t:
        t.advance(days=2)
        t.do(t.store.prune(timedelta(hours=3).total_seconds()))
        report = t.do(audit(t.store, since=EPOCH, retention=timedelta(hours=3)))
    assert report.clean, report.findings
    assert report.since == report.kept_since == t.now - timedelta(hours=3) + timedelta(minutes=10)
    assert report.expected == report.ran == 170


def test_rows_older_than_the_known_history_are_not_compared_with_it():
    scheduler = minutely()
    scheduler.task(lambda: None, id="work")
    with virtual(scheduler) as t:
        t.do(scheduler.add("work", every(minutes=3), id="changed"))
        t.advance(hours=5)
        t.do(scheduler.add("work", every(minutes=2), id="changed", replace=True))
        changed_at = t.now
        t.advance(hours=5)
        t.do(t.store.prune(timedelta(hours=1).total_seconds()))
        assert len(t.do(t.store.history("changed"))) == 1
        report = t.do(audit(t.store, since=EPOCH, retention=timedelta(days=1)))
    assert report.forgotten == {"changed": changed_at}
    gone = [finding.job_id for kind in report.findings.values() for finding in kind]
    assert set(gone) == {"job", "changed"}, "the rows of both are pruned, which is not what retention says"
    assert [finding.due_at > changed_at for finding in report.findings[Kind.UNACCOUNTED]] == [False, True]


# What is not decided


def test_what_nobody_decides_is_overdue_until_somebody_does():
    with virtual(minutely()) as t:
        t.advance(minutes=10)
        t.stop()
        t.advance(seconds=30)
        assert found(t.audit()) == {}
        t.advance(hours=30)
        report = t.audit()
        assert found(report) == {Kind.OVERDUE: 30 * 60}
        assert report.expected == report.ran + report.pending + 30 * 60
        assert report.pending == 0
        t.start()
        t.advance(minutes=1)
        assert found(t.audit()) == {}


def test_what_fell_due_just_now_is_pending():
    with virtual(minutely(misfire_after=600)) as t:
        t.advance(minutes=10, seconds=30)
        t.stop()
        t.advance(minutes=5)
        report = t.audit()
    assert (report.clean, report.expected, report.ran, report.pending) == (True, 15, 10, 5)


def test_a_job_whose_task_nobody_knows_waits_and_is_not_overdue():
    scheduler = minutely()
    with virtual(scheduler) as t:
        t.do(t.store.put_jobs([PutJob(Job("ghost", "vanished", every(minutes=1)))]))
        t.advance(minutes=20)
        report = t.audit()
        assert (report.clean, report.pending) == (True, 20)
        t.advance(days=3)
        report = t.audit()
    assert report.clean, report.findings
    assert report.pending + report.states[State.MISSED] == 20 + 3 * 24 * 60


def test_what_a_pause_holds_back_is_pending():
    scheduler = Scheduler("memory://", slots=1)
    scheduler.job(every(minutes=1), id="job", misfire="all")(lambda: asyncio.sleep(3000))
    with virtual(scheduler) as t:
        t.advance(minutes=3, seconds=30)
        t.pause("job")
        t.advance(minutes=30)
        report = t.audit()
    assert (report.clean, report.expected) == (True, 33)
    assert report.pending >= 1


def test_a_removed_job_that_still_owes_rows_is_overdue_not_unaccounted():
    async def story():
        clock = HandClock()
        harness = Harness.with_clock(MemoryStore(clock), clock)
        await harness.define("job", every(minutes=1))
        await harness.advance(600)
        await harness.remove("job")
        await harness.advance(60)
        before = await audit(harness.store, since=NOON)
        await harness.plan()
        return before, await audit(harness.store, since=NOON)

    before, after = asyncio.run(story())
    assert found(before) == {Kind.OVERDUE: 10}
    assert after.clean
    assert after.states == {State.CANCELLED: 10}


async def test_what_came_before_a_pause_is_not_held_against_it_where_the_clock_was_set_back():
    """One was claimed and one admitted to the queue. By their times both came in the pause."""
    clock = HandClock()
    harness = Harness.with_clock(MemoryStore(clock), clock)
    await harness.join("a")
    await harness.define("job", every(minutes=1), overlap="queue")
    await harness.fall_due()
    first = await harness.claim("a")
    await harness.fall_due()
    assert await harness.claims("a") == []
    await clock.step_back(150)
    await harness.pause("job")
    await harness.elapse(300)
    await harness.resume("job")
    await harness.settle(first)
    second = await harness.claim("a")
    report = await audit(harness.store, since=NOON)
    [pause] = pauses_of(await harness.store.history("job"))
    assert pause.covers(first.started_at)
    assert pause.covers(second.due_at)
    assert report.findings[Kind.PAUSE_IGNORED] == []


# What is wrong


async def test_a_claim_in_a_pause_is_found_although_the_clock_was_set_back():
    clock = HandClock()
    harness = Harness.with_clock(MemoryStore(clock), clock)
    await harness.join("a")
    await harness.define("job", every(minutes=1), retry=Retry(attempts=2, first=1))
    await harness.fall_due()
    fire = await harness.claim("a")
    await clock.step_back(150)
    await harness.pause("job")
    state = harness.store.state
    again = changed(fire.ended(fire.started_at, "retry"), token=fire.token + 1, attempt=2)
    state.fires.put(again)
    state.jobs.put(changed(state.jobs.get("job"), token=again.token), None, None)
    await harness.elapse(300)
    [finding] = (await audit(harness.store, since=NOON)).findings[Kind.PAUSE_IGNORED]
    assert finding.key == fire.key


def test_each_row_of_a_ledger_is_missed_if_it_is_removed():
    scheduler = minutely()
    with virtual(scheduler) as t:
        t.advance(minutes=7, seconds=30)
        t.stop()
        t.advance(minutes=9)
        t.start()
        t.advance(minutes=5)
        t.pause("job")
        t.advance(minutes=5)
        t.resume("job")
        t.advance(minutes=5)
        rows = t.fires("job")
        assert {row.count for row in rows} > {1}
        for row in rows:
            t.store.state.fires.drop(row)
            [finding] = t.audit().findings[Kind.UNACCOUNTED]
            assert (finding.key, finding.count) == (row.key, row.count)
            assert (finding.due_at, finding.last_due_at) == (row.due_at, row.last_due)
            t.store.state.fires.put(row)
        assert t.audit().clean


def test_findings_are_listed_up_to_a_limit_and_counted_beyond():
    with virtual(minutely()) as t:
        t.advance(days=2)
        rows = t.fires("job")
        for row in rows[::2]:
            t.store.state.fires.drop(row)
        report = t.audit()
    assert report.found[Kind.UNACCOUNTED] == len(rows[::2]) > 1000
    assert len(report.findings[Kind.UNACCOUNTED]) == 1000


# While it reads


class Restless(MemoryStore):
    """Something happens between two reads."""

    happens = None

    async def find_fires(self, query):
        rows = await super().find_fires(query)
        if self.happens is not None and query.key is None:
            await self.happens(query)
        return rows


async def test_rows_that_are_joined_while_it_reads_are_not_missed(monkeypatch):
    """A missed fire and a late one, each on a page of its own. When the first page has been read the late one is
    missed as well and joins the row before: its own is gone when its turn comes."""
    clock = HandClock()
    store = Restless(clock)
    harness = Harness.with_clock(store, clock)
    await harness.join("a")
    await harness.define("job", every(minutes=1), misfire="skip")
    await harness.fall_due(95)
    assert len((await harness.ask("a", room=0)).closed) == 1
    await harness.fall_due(60)
    monkeypatch.setattr(pages, "PAGE", 2)
    reads = []

    async def close_after_the_first_page(query):
        reads.append(query)
        if len(reads) == 3:
            assert len((await harness.ask("a", room=0)).closed) == 1

    missed, late, *_ = await harness.fires("job")
    assert (missed.state, missed.count, late.state) == (State.MISSED, 1, State.PENDING)
    store.happens = close_after_the_first_page
    report = await audit(store, since=NOON)
    assert len(reads) > 3
    [row] = await harness.fires("job", State.MISSED)
    assert row.count == 2
    assert report.clean, report.findings
    assert report.states == {State.MISSED: 2}


@pytest.mark.parametrize("page", [2, 7, 25, 26, 1000])
def test_fires_that_are_due_together_are_never_cut_in_two(page, monkeypatch):
    monkeypatch.setattr(pages, "PAGE", page)
    scheduler = Scheduler("memory://", slots=100)
    for number in range(25):
        scheduler.job(every(minutes=1), id=f"job{number}")(lambda: None)
    told = []
    with virtual(scheduler) as t:
        t.advance(minutes=10)
        progress = lambda *words: told.append(words)  # noqa: E731
        report = t.do(audit(t.store, since=EPOCH, progress=progress))
    assert report.clean, report.findings
    assert report.expected == report.ran == 250
    assert told[-1] == ("comparing with the calendars", 250, 250)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_ledger(tmp_path):
    triggers = {f"job{number}": every(seconds=30) for number in range(10)}
    clock = fill(tmp_path / "many.db", triggers, 2_000)
    peaks = {}

    async def measured(since: datetime) -> int:
        store = SqliteStore(tmp_path / "many.db", clock=clock)
        await store.open()
        tracemalloc.start()
        report = await audit(store, since=since)
        peaks[report.expected] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        await store.close()
        assert report.clean, report.findings
        return report.expected

    whole = clock.now - START
    assert asyncio.run(measured(clock.now - whole / 5)) == 4_000
    assert asyncio.run(measured(START)) == 20_000
    assert peaks[20_000] < 1.3 * peaks[4_000] < 20_000_000


# Parts


def test_tokens_are_remembered_however_far_apart():
    seen = TokensSeen()
    tokens = [1, 2, 3, 1 << 40, (1 << 40) + 1, 7, 1023, 1024, 1025]
    assert all(seen.add(token) for token in tokens)
    assert not any(seen.add(token) for token in tokens)
    assert seen.add(4)


async def test_pauses_are_read_from_the_history_as_the_store_has_them():
    clock = HandClock()
    harness = Harness.with_clock(MemoryStore(clock), clock)
    await harness.define("job", every(minutes=1))
    await harness.pause("job", until=NOON + timedelta(minutes=5))
    await harness.advance(600)
    await harness.pause("job")
    await harness.advance(60)
    await harness.pause("job", until=NOON + timedelta(hours=5))
    await harness.advance(60)
    await harness.resume("job")
    await harness.pause("job")
    await clock.step_back(90)  # the pause lies ahead, and the one before is not over
    await harness.resume("job")
    await harness.advance(600)
    await harness.pause("job")
    record, history = await harness.job("job"), await harness.store.history("job")
    assert len(record.pauses) == 4
    assert covered(pauses_of(history)) == covered(record.pauses)


def covered(gaps):
    """The stretches they cover. A pause that got another end is two in the history."""
    found = []
    for gap in gaps:
        if gap.until is not None and gap.until <= gap.since:
            continue
        since = found.pop()[0] if found and found[-1][1] == gap.since else gap.since
        found.append((since, gap.until))
    return found


def test_a_ledger_whose_tokens_jump_with_the_stores_incarnation_is_clean():
    with virtual(minutely()) as t:
        t.advance(minutes=5)
        restarted(t.store.state, moment_of(WorldClock(t.world)), "another start")
        t.advance(days=2)  # nobody claims before everybody could have been heard of
        report, last = t.audit(), t.fires("job")[-1]
    assert report.clean, report.findings
    assert last.token > 1 << 40


def test_a_job_added_for_a_moment_just_past_runs_and_one_long_past_is_missed():
    scheduler, ran = Scheduler("memory://"), []
    scheduler.task(lambda: ran.append(1), id="work")
    with virtual(scheduler) as t:
        t.advance(minutes=1)
        t.do(scheduler.add("work", at(t.now - timedelta(milliseconds=1)), id="now"))
        t.do(scheduler.add("work", at(t.now - timedelta(days=400)), id="then"))
        t.advance(minutes=1)
        report = t.audit()
    assert ran == [1]
    assert report.clean, report.findings
    assert (report.expected, report.ran) == (1, 1)
