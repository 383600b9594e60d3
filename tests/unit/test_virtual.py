"""Downtime, pauses, changed triggers, a year of calendars and changes of leadership, in virtual time."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import logging
import re
import time as real_time
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from fencepost import ConfigurationError, Retry, Scheduler, State, UsageError, cron, every
from fencepost.model import Job
from fencepost.replica.rank import BACKUP
from fencepost.store.base import PutJob
from fencepost.testing import virtual
from fencepost.testing.world import EPOCH
from tests.protocol.calendar import due_between
from tests.unit.apps.cluster import HEARTBEAT, TTL, Cluster


def minutely(**policies):
    scheduler, runs = Scheduler("memory://"), []

    @scheduler.job(every(minutes=1), id="job", **policies)
    def job(fire):
        runs.append(fire.due_at)

    return scheduler, runs


# Downtime


def test_after_a_day_of_downtime_latest_runs_once_and_accounts_for_the_rest_in_one_row():
    scheduler, runs = minutely()
    with virtual(scheduler) as time:
        time.advance(minutes=10)
        time.stop()
        time.advance(days=1)
        assert len(runs) == 10
        time.start()
        time.advance(seconds=10)
        *before, missed, run = time.fires("job")
    assert [fire.state for fire in before] == [State.SUCCEEDED] * 10
    assert runs[10:] == [EPOCH + timedelta(days=1, minutes=10)]
    assert (run.state, run.due_at) == (State.SUCCEEDED, runs[-1])
    assert (missed.state, missed.reason, missed.count) == (State.MISSED, "coalesced", 1439)
    assert missed.refers_to == run.key
    assert (missed.first_due_at, missed.last_due) == (
        EPOCH + timedelta(minutes=11),
        EPOCH + timedelta(days=1, minutes=9),
    )


def test_after_a_day_of_downtime_all_runs_a_hundred_one_after_the_other():
    scheduler, runs = minutely(misfire="all")
    with virtual(scheduler) as time:
        time.stop()
        time.advance(days=1)
        time.start()
        time.advance(seconds=50)
        missed, *ran = time.fires("job")
    assert runs == [EPOCH + timedelta(minutes=minute) for minute in range(1341, 1441)]
    assert [fire.state for fire in ran] == [State.SUCCEEDED] * 100
    assert (missed.state, missed.reason, missed.count) == (State.MISSED, "beyond the catch-up limit", 1340)


def test_after_a_downtime_skip_runs_nothing_late():
    scheduler, runs = minutely(misfire="skip")
    with virtual(scheduler) as time:
        time.stop()
        time.advance(days=1, seconds=40)
        time.start()
        time.advance(seconds=10)
        [missed] = time.fires("job")
        assert not runs
        assert (missed.state, missed.reason, missed.count) == (State.MISSED, "misfire", 1440)
        time.advance(seconds=20)
        assert runs == [EPOCH + timedelta(days=1, minutes=1)]


def test_a_fire_that_is_late_by_less_than_misfire_after_simply_runs():
    scheduler, runs = minutely(misfire="skip")
    with virtual(scheduler) as time:
        time.stop()
        time.advance(seconds=85)
        time.start()
        time.advance(seconds=1)
        assert runs == [EPOCH + timedelta(minutes=1)]


def test_a_week_of_downtime_of_a_job_of_every_second_is_one_row_besides_the_run():
    scheduler, runs = Scheduler("memory://"), []

    @scheduler.job(every(seconds=1), id="job")
    def job(fire):
        runs.append(fire.due_at)

    with virtual(scheduler) as time:
        time.stop()
        time.advance(days=7)
        time.start()
        time.advance(seconds=10)
        missed, first, *others = time.fires("job")
    assert missed.count + 1 + len(others) == 7 * 86_400 + 10
    assert (missed.state, missed.reason) == (State.MISSED, "coalesced")
    assert missed.first_due_at == EPOCH + timedelta(seconds=1)
    assert first.state is State.SUCCEEDED
    assert first.due_at == missed.last_due + timedelta(seconds=1)
    assert all(fire.state is State.SUCCEEDED for fire in others)
    assert len(runs) == 1 + len(others)


def test_what_falls_due_in_a_pause_does_not_run_and_is_one_row():
    scheduler, runs = minutely()
    with virtual(scheduler) as time:
        time.advance(minutes=10, seconds=30)
        time.do(scheduler.pause("job"))
        time.advance(hours=1)
        time.do(scheduler.resume("job"))
        time.advance(minutes=5)
        rows = time.fires("job")
    paused = [fire for fire in rows if fire.state is State.SKIPPED]
    assert [(fire.reason, fire.count) for fire in paused] == [("paused", 60)]
    assert paused[0].first_due_at == EPOCH + timedelta(minutes=11)
    assert paused[0].last_due == EPOCH + timedelta(minutes=70)
    assert runs == [EPOCH + timedelta(minutes=n) for n in (*range(1, 11), *range(71, 76))]


def test_a_pause_during_a_downtime_divides_the_backlog_at_its_edges():
    scheduler, runs = minutely()
    with virtual(scheduler) as time:
        time.advance(seconds=30)
        time.do(scheduler.pause("job", until=EPOCH + timedelta(hours=2, seconds=30)))
        time.stop()
        time.advance(hours=5)
        time.start()
        time.advance(seconds=10)
        rows = [(fire.state.value, fire.reason, fire.count) for fire in time.fires("job")]
    assert rows == [("skipped", "paused", 120), ("missed", "coalesced", 179), ("succeeded", None, 1)]
    assert len(runs) == 1


# Changes while fires are planned


@pytest.mark.parametrize("change_at", [11.5 * 60, 11.999 * 60, 12 * 60, 12 * 60 + 0.001, 12.5 * 60])
def test_a_changed_trigger_neither_doubles_nor_drops_a_fire(change_at):
    cluster = Cluster()
    cluster.add(Job("job", "body", every(minutes=2, anchor=EPOCH)))
    cluster.run(change_at)
    cluster.add(Job("job", "body", every(minutes=3, anchor=EPOCH)))
    cluster.run(30 * 60 + 1 - cluster.world.now)
    minutes = [2, 4, 6, 8, 10, 12, 15, 18, 21, 24, 27, 30]
    due = [EPOCH + timedelta(minutes=minute) for minute in minutes]
    assert [fire.due_at for fire in cluster.fires("job")] == due
    assert {fire.state for fire in cluster.fires("job")} == {State.SUCCEEDED}
    assert len(cluster.starts) == len(due)
    assert set(cluster.starts.values()) == {1}


def test_a_changed_timeout_changes_nothing_planned():
    cluster = Cluster()
    job = Job("job", "body", every(minutes=2, anchor=EPOCH))
    cluster.add(job)
    cluster.run(119)
    before = cluster.ask("jobs")[0]
    changed = Job("job", "body", every(minutes=2, anchor=EPOCH), timeout=timedelta(seconds=5))
    assert cluster.ask("put_jobs", [PutJob(changed)])[0].outcome == "changed"
    after = cluster.ask("jobs")[0]
    assert (after.version, after.segments) == (before.version, before.segments)
    cluster.run(10 * 60)
    assert len(cluster.fires("job")) == len(cluster.starts) == 5


def test_a_job_whose_function_has_vanished_stops_no_other_and_is_accounted_for():
    cluster = Cluster()
    cluster.add(Job("ghost", "vanished", every(minutes=1)), Job("job", "body", every(minutes=1)))
    cluster.run(3 * 3600 + 1)
    assert len(cluster.starts) == 180
    assert all(key.startswith("job@") for key in cluster.starts)
    ghosts = [fire for fire in cluster.fires("ghost") if fire.state.final]
    assert {(fire.state, fire.reason) for fire in ghosts} == {(State.MISSED, "no replica knew the task")}
    assert len(ghosts) == 1


# A year


@pytest.mark.parametrize(
    ("start", "days"),
    [
        pytest.param(
            datetime(2026, 3, 6, tzinfo=UTC), 32, id="spring, in which all three change their clocks"
        ),
        pytest.param(datetime(2026, 1, 1, tzinfo=UTC), 365, id="a year", marks=pytest.mark.slow),
    ],
)
def test_calendars_in_three_zones_are_kept_to_the_minute(start, days):
    triggers = {
        "zurich": cron("30 2 * * *", tz="Europe/Zurich"),
        "new_york": cron("0 * * * *", tz="America/New_York"),
        "lord_howe": cron("0 2 * * *", tz="Australia/Lord_Howe"),
    }
    scheduler, starts = Scheduler("memory://", retention="500d"), Counter()

    async def job(fire):
        starts[fire.key] += 1

    for id, trigger in triggers.items():
        scheduler.job(trigger, id=id)(job)
    begun = real_time.process_time()
    with virtual(scheduler, start=start) as time:
        time.advance(days=days)
        took = real_time.process_time() - begun
        ledger = {id: time.fires(id) for id in triggers}
        until = time.now
    for id, trigger in triggers.items():
        assert [fire.due_at for fire in ledger[id]] == due_between(trigger.to_json(), start, until), id
        assert {(fire.state, fire.count) for fire in ledger[id]} == {(State.SUCCEEDED, 1)}
        assert all(fire.started_at == fire.due_at for fire in ledger[id]) or _lateness(ledger[id]) < 0.1
    assert len(starts) == sum(len(rows) for rows in ledger.values()) > 25 * days
    assert set(starts.values()) == {1}
    assert took < 20 * days / 365 + 1


def _lateness(rows):
    return max((fire.started_at - fire.due_at).total_seconds() for fire in rows)


def test_a_coroutine_sleeps_in_virtual_time():
    scheduler, woke = Scheduler("memory://"), []

    @scheduler.job(every(hours=1), id="job")
    async def job():
        await asyncio.sleep(1200)
        woke.append(time.now)

    with virtual(scheduler) as time:
        time.advance(hours=1)
        assert [fire.state for fire in time.fires("job")] == [State.RUNNING]
        time.advance(minutes=30)
        [fire] = time.fires("job", state="succeeded")
    assert (fire.finished_at - fire.started_at).total_seconds() == pytest.approx(1200, abs=0.1)
    assert len(woke) == 1


def test_a_handle_can_be_waited_for_in_virtual_time():
    scheduler = Scheduler("memory://")

    @scheduler.task(id="job")
    async def job():
        await asyncio.sleep(90)

    with virtual(scheduler) as time:
        handle = time.do(scheduler.trigger(job))
        with pytest.raises(TimeoutError):
            time.do(handle.wait(timeout=60))
        assert time.do(handle.wait(timeout=100)).state is State.SUCCEEDED


def test_an_error_in_the_loops_does_not_pass_unnoticed():
    with virtual(Scheduler("memory://")) as time:
        time._process.call_exception_handler({"message": "broken"})
        with pytest.raises(AssertionError, match="broken"):
            time.advance(seconds=1)


# What a test of one's own jobs needs


def hourly(function=lambda: None, **policies):
    scheduler = Scheduler("memory://")
    scheduler.job(every(hours=1), id="job", **policies)(function)
    return scheduler


def test_time_stands_still_until_it_is_advanced():
    start = datetime(2026, 3, 28, 23, 30, tzinfo=ZoneInfo("Europe/Zurich"))
    with virtual(hourly(), start=start) as t:
        assert t.now - start < timedelta(seconds=0.01)
        before = t.now
        assert t.fires("job") == []
        assert t.now == before
        t.advance_to(start + timedelta(hours=1))
        assert t.now == start + timedelta(hours=1)
        t.assert_ran("job", times=1, at=start + timedelta(hours=1))


def test_time_does_not_run_backwards_and_needs_a_zone():
    with virtual(hourly()) as t:
        t.advance(hours=2)
        with pytest.raises(UsageError, match="does not run backwards"):
            t.advance_to(EPOCH)
        with pytest.raises(UsageError, match="does not run backwards"):
            t.advance(hours=-1)
        with pytest.raises(ConfigurationError, match="naive"):
            t.advance_to(datetime(2027, 1, 1))
    with pytest.raises(ConfigurationError, match="naive"), virtual(hourly(), start=datetime(2027, 1, 1)):
        pass


def test_a_daily_job_over_a_year_takes_a_fraction_of_a_second():
    scheduler = Scheduler("memory://")  # its retention is not a year; nothing is forgotten here all the same

    @scheduler.job(cron("30 2 * * *", tz="Europe/Zurich"))
    def report():
        pass

    begun = real_time.process_time()
    with virtual(scheduler, start=datetime(2026, 1, 1, tzinfo=UTC)) as t:
        t.advance(days=365)
        took = real_time.process_time() - begun
        t.assert_ran(report, times=365)
        assert t.audit().clean
    print(f"a daily job over a year: {took * 1000:.0f} ms")
    assert took < 3


def test_what_ran_is_asserted_with_the_ledger_in_the_message():
    with virtual(hourly()) as t:
        with pytest.raises(AssertionError, match="job ran 0 times, not at all; .*; nothing was due"):
            t.assert_ran("job")
        t.advance(hours=2)
        t.assert_ran("job")
        t.assert_ran("job", 2)
        due = [EPOCH + timedelta(hours=1), EPOCH + timedelta(hours=2)]
        t.assert_ran("job", at=due)
        t.assert_ran("job", at=[moment.astimezone(ZoneInfo("Asia/Kolkata")) for moment in due])
        with pytest.raises(AssertionError, match="ran 2 times, not 3 times(.|\n)*13:00:00Z succeeded"):
            t.assert_ran("job", times=3)
        with pytest.raises(AssertionError, match="did not run at 2026-11-15 13:00:00Z and only then"):
            t.assert_ran("job", at=due[0])


def test_a_failed_run_is_not_one_that_ran():
    with virtual(hourly(lambda: 1 / 0)) as t:
        t.advance(hours=1)
        assert [fire.state for fire in t.ran("job")] == [State.FAILED]
        with pytest.raises(AssertionError, match="job failed at 2026-11-15 13:00:00Z: ZeroDivisionError"):
            t.assert_ran("job", times=1)


def test_a_job_that_is_not_there_is_no_job_that_never_ran():
    with virtual(hourly()) as t:
        for look in (t.fires, t.ran, t.assert_ran):
            with pytest.raises(UsageError, match="there is no job 'jbo' here; did you mean 'job'"):
                look("jbo")
        with pytest.raises(UsageError, match="is not a job of this scheduler"):
            t.fires(print)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_trigger_by_hand_says_how_it_ended(is_async):
    scheduler, seen = Scheduler("memory://"), []

    if is_async:

        @scheduler.task(id="send")
        async def send(user: int):
            await asyncio.sleep(90)
            seen.append(user)
    else:

        @scheduler.task(id="send")
        def send(user: int):
            seen.append(user)

    with virtual(scheduler) as t:
        fire = t.trigger(send, {"user": 42})
        assert (fire.state, fire.scheduled) == (State.SUCCEEDED, False)
        assert t.now - EPOCH < timedelta(seconds=91)
        with pytest.raises(ConfigurationError, match="lacks user"):
            t.trigger("send")
    assert seen == [42]


def test_a_trigger_that_does_not_end_is_not_waited_for_for_ever():
    scheduler = Scheduler("memory://")

    @scheduler.task(id="stuck")
    async def stuck():
        await asyncio.Event().wait()

    with virtual(scheduler) as t, pytest.raises(TimeoutError):
        t.trigger(stuck, timeout=600)


def test_retries_timeouts_and_pauses():
    scheduler, attempts = Scheduler("memory://"), []

    @scheduler.job(every(hours=1), retry=Retry(attempts=3, first=60, jitter=0), timeout=30)
    async def fetch(fire):
        attempts.append(fire.attempt)
        await asyncio.sleep(1 if fire.attempt == 3 else 100)

    with virtual(scheduler) as t:
        t.advance(hours=1, minutes=5)
        t.assert_ran(fetch, times=1)
        [fire] = t.fires(fetch)
        assert [attempt.outcome for attempt in fire.attempts] == ["retry", "retry", "succeeded"]
        assert "timed out" in fire.attempts[0].error
        t.pause(fetch, reason="moving", until=t.now + timedelta(hours=3))
        t.advance(hours=2)
        [skipped] = t.fires(fetch, state="skipped")
        assert (skipped.reason, skipped.count) == ("paused", 2)
        t.resume(fetch)
        t.advance(hours=1)
        t.assert_ran(fetch, times=2)
        assert t.audit().clean
    assert attempts == [1, 2, 3, 1, 2, 3]


async def test_virtual_time_works_inside_of_a_running_event_loop():
    with virtual(hourly()) as t:
        t.advance(hours=3)
        t.assert_ran("job", times=3)
    await asyncio.sleep(0)  # and leaves it as it was


# Leadership


def test_exactly_one_of_three_replicas_leads():
    cluster = Cluster()
    for _ in range(3):
        cluster.add()
    cluster.run(1)
    for _ in range(100):
        cluster.run(0.7)
        assert sum(member.leads for member in cluster.members) == 1
    assert sum(len(member.told("leader.elected")) for member in cluster.members) == 1


def test_a_graceful_stop_hands_leadership_over_at_once():
    cluster = Cluster()
    cluster.add()
    cluster.run(1)
    cluster.add()
    cluster.run(1)
    first, second = cluster.members
    assert first.leads
    first.process.create_task(first.replica.drain())
    assert cluster.until(lambda: second.leads, 1) <= 0.2
    assert not first.told("leader.lost")
    cluster.run(1)
    assert [replica.id for replica in cluster.ask("roster").replicas] == ["r1"]


def test_a_killed_leader_is_replaced_within_one_and_a_half_ttls():
    cluster = Cluster()
    cluster.add()
    cluster.run(1)
    cluster.add()
    cluster.run(10.3)
    first, second = cluster.members
    assert first.leads
    first.process.kill()
    took = cluster.until(lambda: second.leads, 2 * TTL)
    assert 0.7 * TTL <= took <= 1.5 * TTL
    assert cluster.ask("roster").leader.term == 2


def test_a_leader_that_was_asleep_steps_down_at_its_first_store_call():
    cluster = Cluster()
    cluster.add()
    cluster.run(1)
    cluster.add()
    cluster.run(5)
    first, second = cluster.members
    assert first.leads
    first.process.pause(4 * TTL)
    woken = cluster.world.now + 4 * TTL
    cluster.until(lambda: second.leads, 3 * TTL)
    cluster.run(woken - cluster.world.now - 0.001)
    assert not first.leads  # its trust has run out while it slept
    assert not first.told("leader.lost")
    cluster.run(0.1)
    [lost] = first.told("leader.lost")
    assert lost - woken < 0.1
    assert not first.leads
    cluster.run(10)
    assert [first.leads, second.leads] == [False, True]


def test_a_sleep_shorter_than_the_ttl_costs_no_leadership():
    cluster = Cluster()
    cluster.add()
    cluster.run(1)
    cluster.add()
    cluster.run(5.5)
    first, second = cluster.members
    first.process.pause(0.6 * TTL)
    cluster.run(3 * TTL)
    assert first.leads
    assert not second.told("leader.elected")


@pytest.mark.parametrize("seconds_before", [0.05, 1.0, 4.0])
def test_a_planned_fire_starts_on_time_although_the_leader_has_just_died(seconds_before):
    job = Job("job", "body", every(seconds=15, anchor=EPOCH))
    cluster = Cluster()
    cluster.add(job)
    cluster.run(1)
    cluster.add(job)
    cluster.run(60 - seconds_before - cluster.world.now)
    first, _ = cluster.members
    assert first.leads
    first.process.kill()
    cluster.run(seconds_before + BACKUP + 0.1)
    [key] = [key for key in cluster.starts if key.startswith("job@2026-11-15T12:01:00")]
    assert cluster.starts[key] == 1
    assert cluster.started_at[key] - 60 < BACKUP + 0.1
    cluster.run(60)
    assert [fire.due_at.second for fire in cluster.fires("job")] == [15, 30, 45, 0] * 2
    assert {fire.state for fire in cluster.fires("job")} == {State.SUCCEEDED}


def test_a_run_of_a_killed_replica_is_lost_and_with_rerun_it_is_repeated_with_a_higher_token():
    seen = []

    async def body(fire):
        seen.append((fire.job_id, fire.attempt, fire.token))
        await asyncio.sleep(5)

    cluster = Cluster()
    jobs = [
        Job("record", "body", every(seconds=20, anchor=EPOCH)),
        Job("rerun", "body", every(seconds=20, anchor=EPOCH), after_crash="rerun"),
    ]
    cluster.add(*jobs, body=body)
    cluster.run(22)
    assert sorted(seen) == [("record", 1, 1), ("rerun", 1, 1)]
    cluster.add(*jobs, body=body)
    cluster.run(1)
    cluster.members[0].process.kill()
    cluster.run(3 * TTL - 2)
    [lost] = cluster.fires("record")[:1]
    assert (lost.state, lost.reason) == (State.LOST, "its replica died in mid-run")
    cluster.run(15)
    [again] = cluster.fires("rerun")[:1]
    assert (again.state, again.attempt, again.crashes) == (State.SUCCEEDED, 2, 1)
    assert [each.outcome for each in again.attempts] == ["lost", "succeeded"]
    assert ("rerun", 2, 2) in seen
    assert cluster.starts[lost.key] == 1


@pytest.mark.parametrize("after", [0.0, 1.0, 2.9, 4.5, 6.0])
def test_a_successor_that_starts_after_the_crash_waits_no_longer_than_the_ttl(after):
    """Nobody else is there: it joins, is elected, and runs what the dead replica ran, within one TTL of its start or of
    the crash, whichever is later."""
    cluster = Cluster()
    job = Job("rerun", "body", every(seconds=20, anchor=EPOCH), after_crash="rerun")

    async def for_ever(fire):
        await asyncio.sleep(1000)

    first = cluster.add(job, body=for_ever)
    cluster.run(21)
    [key] = cluster.starts
    first.process.kill()
    cluster.run(after)
    second = cluster.add(job)
    waited = cluster.until(lambda: cluster.starts[key] == 2, 2 * TTL)
    assert second.replica.runs or cluster.fires("rerun")
    assert waited <= TTL, f"{waited:.2f} s"


def test_a_takeover_is_told_with_old_new_and_the_gap_and_a_handover_is_none(caplog):
    """And every operation on a lock is logged at debug."""
    caplog.set_level(logging.DEBUG, "fencepost.locks")
    cluster = Cluster()
    first = cluster.add(Job("job", "body", every(seconds=5, anchor=EPOCH)))
    cluster.run(1)
    second = cluster.add()
    cluster.run(10.3)
    first.process.kill()
    cluster.until(lambda: second.leads, 2 * TTL)
    [told] = [event for _, event in second.events if event.kind == "leader.failover"]
    gap = re.fullmatch(r"from r0 to r1, ([0-9.]+) s after its last sign of life", told.detail)
    assert gap is not None
    assert TTL - HEARTBEAT <= float(gap[1]) <= 1.5 * TTL
    third = cluster.add()
    cluster.run(3 * TTL)
    second.process.create_task(second.replica.drain())
    cluster.until(lambda: third.leads, 2 * TTL)
    assert not third.told("leader.failover")
    operations = {tuple(message.split()[:2]) for message in caplog.messages}
    assert {("acquired", "leader,"), ("renewed", "leader,"), ("released", "leader,")} <= operations
    assert ("refused", "leader:") in operations
    claims = [message.partition(" ")[0] for message in caplog.messages if " job@" in message]
    assert {"acquired", "released"} <= set(claims)
