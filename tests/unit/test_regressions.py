"""Bugs that were there once."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fencepost import ConfigurationError, Retry, Scheduler, State, at, current_fire, every
from fencepost.clock import SystemClock, moment_of
from fencepost.errors import StoreUnavailable
from fencepost.model import Backfill, Job, Reason, ReplicaRecord, manual_key
from fencepost.store.base import ChangeJob, ClaimRequest, FireQuery, HeartbeatRequest, NewFire, PutJob, Report
from fencepost.store.memory import MemoryStore
from fencepost.store.rules.data_loss import restarted
from fencepost.testing import virtual
from fencepost.testing.conformance import HandClock, Harness
from tests.protocol.sim import simulate
from tests.protocol.sim.store import SimulatedStore
from tests.unit.apps.cluster import Cluster
from tests.unit.apps.waiting import PATIENCE, eventually, fire_of

FAR = at(datetime(2100, 1, 1, tzinfo=UTC))


def quick(store: MemoryStore | str = "memory://", **settings) -> Scheduler:
    chosen = {"heartbeat": 0.1, "leader_ttl": 0.5, "run_ttl": 5, "horizon": 1, "drain_timeout": 0.1}
    return Scheduler(store, **{**chosen, **settings})


async def test_current_fire_is_known_inside_a_coroutine():
    scheduler, keys = quick(), []

    @scheduler.task(id="job")
    async def job():
        await asyncio.sleep(0)
        keys.append(current_fire().key)

    async with scheduler:
        handle = await scheduler.trigger(job)
        record = await handle.wait(PATIENCE)
    assert record.state is State.SUCCEEDED, record.error
    assert keys == [handle.key]


def test_a_hint_given_just_after_another_is_not_lost():
    """The listener is deaf for 5 ms after each hint; what is triggered then waits for half a horizon."""
    scheduler, seen = Scheduler("memory://"), []
    scheduler.task(lambda: None, id="other")

    @scheduler.task(id="send")
    async def send():
        seen.append(1)

    with virtual(scheduler) as t:
        t.advance(minutes=1)
        t.do(scheduler.pause("other"))
        t.advance(seconds=0.002)
        t.do(scheduler.trigger(send))
        t.advance(seconds=0.1)
        assert seen == [1]


async def test_an_error_that_the_retry_does_not_cover_fails_the_run():
    scheduler = quick()

    @scheduler.job(FAR, id="job", retry=Retry(attempts=5, first=0.01, on=(OSError,)))
    async def job():
        raise KeyError("not covered")

    async with scheduler:
        record = await (await scheduler.trigger(job)).wait(PATIENCE)
    assert (record.state, record.attempt) == (State.FAILED, 1)


@pytest.mark.parametrize("error", [StopIteration, GeneratorExit])
async def test_whatever_a_thread_raises_ends_its_run(error):
    scheduler = quick()

    @scheduler.task(id="job")
    def job():
        raise error

    async with scheduler:
        record = await (await scheduler.trigger(job)).wait(PATIENCE)
    assert record.state is State.FAILED
    assert error.__name__ in record.error


async def test_whatever_a_coroutine_raises_ends_its_run():
    scheduler = quick()

    @scheduler.task(id="job")
    async def job():
        raise GeneratorExit

    async with scheduler:
        record = await (await scheduler.trigger(job)).wait(PATIENCE)
    assert record.state is State.FAILED


async def test_an_error_that_cannot_be_told_still_ends_its_run():
    scheduler = quick()

    class Untellable(Exception):
        @property
        def __notes__(self):
            raise RuntimeError("broken")

    @scheduler.task(id="job")
    async def job():
        raise Untellable

    async with scheduler:
        record = await (await scheduler.trigger(job)).wait(PATIENCE)
    assert record.state is State.FAILED


@pytest.mark.parametrize("error", ["SystemExit(3)", "KeyboardInterrupt"])
def test_no_exception_of_a_coroutine_ends_the_process(error, tmp_path):
    script = tmp_path / "app.py"
    script.write_text(
        f"""
import asyncio
from fencepost import Scheduler
scheduler = Scheduler("memory://", drain_timeout=0.1)

@scheduler.task(id="job")
async def job():
    raise {error}

async def main():
    async with scheduler:
        record = await (await scheduler.trigger(job)).wait(60)
        print(record.state, record.reason)

asyncio.run(main())
"""
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "failed raised an exception\n"), done.stderr[-500:]


async def test_a_body_that_winds_down_is_not_settled_by_a_second_cancel():
    """First its timeout cancels it; while it ends, somebody cancels the fire."""
    store = MemoryStore()
    scheduler, seen = quick(store), []

    @scheduler.job(FAR, id="job", timeout=0.1)
    async def job(fire):
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.append("told")
            await asyncio.sleep(0.6)
            seen.append(fire_of(store, fire.key).state)
            raise

    async with scheduler:
        handle = await scheduler.trigger(job)
        await eventually(lambda: seen)
        await scheduler.cancel(handle.key)
        await handle.wait(PATIENCE)
        await eventually(lambda: len(seen) == 2)
    assert seen == ["told", State.RUNNING]


async def test_a_thread_with_a_checkpoint_is_not_given_back_while_it_runs():
    """DESIGN 3.9: a graceful stop gives it back with its checkpoint, after the body has ended."""
    store, log, release = MemoryStore(), [], threading.Event()
    first, second = quick(store), quick(store)

    def job(fire):
        log.append(("start", fire.token))
        if fire.token == 1:
            fire.save({"page": 1}).wait(PATIENCE)
            release.wait(PATIENCE)
        log.append(("end", fire.token))

    for scheduler in (first, second):
        scheduler.task(id="job")(job)
    await first.start()
    await second.start()
    handle = await first.trigger("job")
    await eventually(lambda: fire_of(store, handle.key).checkpoint)
    holder = first if fire_of(store, handle.key).replica == first.replica.id else second
    stopping = asyncio.ensure_future(holder.stop())
    await asyncio.sleep(0.8)
    release.set()
    await stopping
    for scheduler in (first, second):
        await scheduler.stop()
    assert ("start", 2) not in log or log.index(("end", 1)) < log.index(("start", 2))


class SlowToWrite(MemoryStore):
    """Takes its time for checkpoints."""

    async def update_claims(self, replica, updates):
        if any(isinstance(update, Report) and update.saves for update in updates):
            await asyncio.sleep(0.3)
        return await super().update_claims(replica, updates)


async def test_a_run_may_be_cancelled_while_its_checkpoint_is_written(caplog):
    """The settler has nobody to answer then; it raised, and what was settled with it had to be written again."""
    store, saving = SlowToWrite(), []
    scheduler = quick(store)

    @scheduler.task(id="job")
    async def job(fire):
        saving.append(fire.key)
        await fire.save({"page": 1})

    async with scheduler:
        handle = await scheduler.trigger(job)
        await eventually(lambda: saving)
        await scheduler.cancel(handle.key)
        await handle.wait(PATIENCE)
    found = fire_of(store, handle.key)
    assert (found.state, found.checkpoint) == (State.CANCELLED, {"page": 1})
    assert "unexpected error" not in caplog.text


async def test_a_restarted_scheduler_tells_each_event_once():
    scheduler, heard = quick(), []

    @scheduler.on("succeeded")
    def handler(event):
        heard.append(event.key)

    @scheduler.task(id="job")
    async def job():
        pass

    async with scheduler:
        pass
    async with scheduler:
        handle = await scheduler.trigger(job)
        await handle.wait(PATIENCE)
        await eventually(lambda: heard)
        await asyncio.sleep(0.05)
    assert heard == [handle.key]


async def test_a_handler_registered_while_running_is_called():
    scheduler, heard = quick(), []

    @scheduler.task(id="job")
    async def job():
        pass

    async with scheduler:

        @scheduler.on("succeeded")
        def handler(event):
            heard.append(event.key)

        handle = await scheduler.trigger(job)
        await handle.wait(PATIENCE)
        await eventually(lambda: heard)


def test_a_leader_that_leaves_gracefully_says_that_it_resigned():
    cluster = Cluster()
    leader = cluster.add()
    cluster.run(1)
    assert leader.leads
    leader.process.create_task(leader.replica.drain())
    cluster.run(1)
    assert leader.told("replica.left")
    assert len(leader.told("leader.resigned")) == 1


def test_handlers_are_called_in_virtual_time_as_well():
    scheduler, heard = Scheduler("memory://"), []

    @scheduler.on("succeeded")
    def handler(event):
        heard.append(event.key)

    @scheduler.task(id="job")
    async def job():
        pass

    with virtual(scheduler) as t:
        handle = t.do(scheduler.trigger(job))
        t.advance(seconds=1)
    assert heard == [handle.key]


async def test_a_function_that_returns_a_coroutine_is_not_a_silent_success():
    """For instance a coroutine function behind a decorator that does not say so."""
    scheduler, ran = quick(), []

    async def inner():
        ran.append(1)

    @scheduler.task(id="job")
    def wrapper():
        return inner()

    async with scheduler:
        record = await (await scheduler.trigger(wrapper)).wait(PATIENCE)
    assert ran or record.state is State.FAILED


def test_a_generator_is_refused_as_a_job_because_calling_it_runs_nothing():
    scheduler = Scheduler("memory://")

    def generator():
        yield 1

    async def async_generator():
        yield 1

    for function in (generator, async_generator):
        with pytest.raises(ConfigurationError):
            scheduler.task(function)


# Bad input that is taken silently, or refused with a bare TypeError or AttributeError


def test_a_job_decorator_without_a_trigger_is_refused_at_once():
    """`@scheduler.job` without parentheses: nothing would be declared, and the function be lost."""
    scheduler = Scheduler("memory://")
    with pytest.raises(ConfigurationError, match="is not a trigger"):

        @scheduler.job
        def nightly():
            pass


def test_an_event_decorator_without_parentheses_is_refused_with_a_remedy():
    scheduler = Scheduler("memory://")
    with pytest.raises(ConfigurationError):

        @scheduler.on
        def handler(event):
            pass


@pytest.mark.parametrize("store", [42, Path("jobs.db"), object()])
def test_a_store_that_is_neither_url_nor_store_is_refused(store):
    with pytest.raises(ConfigurationError):
        Scheduler(store)


@pytest.mark.parametrize("id", ["", 5])
def test_an_id_that_is_empty_or_no_text_is_refused(id):
    with pytest.raises(ConfigurationError):
        Scheduler("memory://").task(lambda: None, id=id)


@pytest.mark.parametrize(
    "policies", [{"crash_attempts": "3"}, {"crash_attempts": None}, {"crash_attempts": 2.5}, {"args": 0}]
)
def test_a_policy_of_the_wrong_type_is_refused_with_a_remedy(policies):
    with pytest.raises(ConfigurationError):
        Scheduler("memory://").job(every(hours=1), **policies)(lambda: None)


@pytest.mark.parametrize(
    "values", [{"attempts": "3"}, {"first": None}, {"attempts": 2.5}, {"jitter": "half"}, {"on": 5}]
)
def test_a_retry_of_the_wrong_type_is_refused_with_a_remedy(values):
    with pytest.raises(ConfigurationError):
        Retry(**values)


async def test_an_empty_idempotency_key_is_refused_rather_than_ignored():
    scheduler = quick()
    scheduler.task(lambda: None, id="job")
    async with scheduler:
        with pytest.raises(ConfigurationError):
            await scheduler.trigger("job", idempotency_key="")


# The command


def start(tmp_path: Path, source: str, **env: str) -> subprocess.Popen:
    (tmp_path / "app.py").write_text(source)
    return subprocess.Popen(
        [sys.executable, "-c", "from fencepost.cli import main; main()", "run", "app:scheduler"],
        cwd=tmp_path,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_stuck_thread_does_not_keep_the_process_from_ending(tmp_path):
    process = start(
        tmp_path,
        """
import time
from fencepost import Scheduler, every
scheduler = Scheduler("memory://", heartbeat=0.5, leader_ttl=1, run_ttl=1, horizon=2)

@scheduler.job(every(seconds=0.1))
def stuck():
    print("started", flush=True)
    time.sleep(15)
""",
        FENCEPOST_DRAIN_TIMEOUT="0.1",
    )
    try:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        process.wait(8)
        assert time.monotonic() - begun < 4
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_the_command_with_130(tmp_path):
    """DESIGN 7: 0 done (graceful SIGTERM included), 130 interrupted."""
    process = start(
        tmp_path,
        """
from fencepost import Scheduler, every
scheduler = Scheduler("memory://")

@scheduler.job(every(seconds=0.1))
def tick():
    print("tick", flush=True)
""",
    )
    try:
        assert process.stdout.readline() == "tick\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130
    finally:
        process.kill()
        process.communicate()


# Found by the simulator. What the stores had wrong is in `fencepost.testing.conformance.simulated`.


def test_who_may_hold_a_claim_unheard_does_not_wait_long_to_reconnect():
    """Its claim was made, the reply lost: without a run of its own it put itself off for up to two TTLs, and the
    fire was lost meanwhile."""
    cluster = Cluster(remote=True)
    member = cluster.add(Job("job", "body", every(seconds=1)))
    cluster.run(3.5)
    cluster.network.cut_off.add("r0")
    cluster.until(lambda: member.replica.worker.is_asking, 5)
    assert not member.replica.runs
    assert member.replica.backoff(failures=7) <= member.replica.settings.heartbeat.total_seconds() / 2


def test_a_claim_answered_only_by_a_store_that_restarted_is_looked_for_at_once():
    """What it had claimed before the restart was not in that answer. The heart, which alone could find it, put itself
    off for long, as nothing seemed to be held: a fire that nobody had started was lost."""
    cluster = Cluster(remote=True)
    member = cluster.add(Job("job", "body", every(seconds=1)))
    worker, store = member.replica.worker, member.replica.store
    cluster.run(3.5)
    cluster.network.cut_off.add("r0")
    cluster.until(lambda: worker.is_asking, 5)
    cluster.run(12)
    beat = store.heartbeat

    async def unanswered_at_first(message):
        if not worker.is_asking:
            return await beat(message)
        while worker.is_asking:
            await asyncio.sleep(0.01)
        raise StoreUnavailable("no answer")

    store.heartbeat = unanswered_at_first
    cluster.run(3)
    cluster.ask("restarted", "another start")
    cluster.network.cut_off.clear()
    cluster.until(lambda: not worker.is_asking, 5)
    assert not member.told("store.recovered")
    cluster.until(lambda: member.told("store.recovered"), 1)


def test_a_run_that_the_store_forgot_to_have_settled_is_settled_again():
    """It gave back what it did not know, as never started: a finished run was run a second time."""
    cluster = Cluster(remote=True)
    cluster.add(Job("job", "body"))
    cluster.run(3)
    cluster.ask("add_fire", NewFire(manual_key("job", "x"), "job"))
    running = []

    def note(process, name, args, reply):
        if name == "claim_fires":
            running.extend(claim.fire for claim in reply.claims)

    cluster.network.on_commit = note
    cluster.run(1)
    [fire] = cluster.fires("job")
    assert fire.state is State.SUCCEEDED
    cluster.network.state.fires.put(running[0])
    cluster.run(5)
    [again] = cluster.fires("job")
    assert (again.state, again.token) == (State.SUCCEEDED, fire.token)
    assert cluster.starts == {fire.key: 1}


def test_a_run_that_is_being_settled_is_not_called_fenced():
    """Its settlement was committed, the reply lost; the next beat no longer listed it."""
    cluster = Cluster(remote=True)
    member = cluster.add(Job("job", "body"))
    cluster.run(3)

    def lose_the_first(process, name, args, reply):
        if name == "update_claims":
            cluster.network.deaf.add("r0")
            cluster.network.on_commit = lambda *_: None

    cluster.network.on_commit = lose_the_first
    cluster.ask("add_fire", NewFire(manual_key("job", "x"), "job"))
    cluster.run(0.5)
    cluster.network.deaf.clear()
    cluster.run(6)
    assert member.told("succeeded")
    assert not member.told("fenced")


def test_definitions_that_are_being_written_when_a_loss_is_learned_of_are_written_again():
    """They were committed and lost before the answer came: it counted as declared, and the job was gone for good."""
    cluster = Cluster(remote=True)
    store = cluster.network.state = SimulatedStore()
    member = cluster.add(Job("job", "body", every(seconds=1)))
    put = member.replica.store.put_jobs

    async def put_slowly(jobs):
        reply = await put(jobs)
        await asyncio.sleep(10)
        return reply

    member.replica.store.put_jobs = put_slowly
    nothing = store.snapshot()
    cluster.until(lambda: store.jobs.rows, 2)
    cluster.run(1)
    store.restore(nothing)
    cluster.network.restart_store()
    cluster.ask("restarted", "another start")
    cluster.until(lambda: member.told("store.lost_data"), 5)
    assert not store.jobs.rows
    cluster.run(20)
    assert list(store.jobs.rows) == ["job"]


def test_who_was_declared_dead_can_still_prove_a_loss_that_forgets_it():
    """It had not been told of all the store had counted for it. When the store went back to that, it seemed to know
    more than the replica did, although it had forgotten that the replica joined again."""
    cluster = Cluster(remote=True)
    store = cluster.network.state = SimulatedStore()
    members = [cluster.add(), cluster.add()]
    cluster.until(lambda: cluster.leader and len(store.replicas.rows) == 2, 5)
    [member] = [each for each in members if each is not cluster.leader]
    [leader] = [each for each in members if each is cluster.leader]
    cluster.network.deaf.add(member.replica.id)
    cluster.run(10)
    counted = store.snapshot()
    cluster.network.cut_off.add(member.replica.id)
    cluster.until(lambda: member.replica.id not in store.replicas.rows, 30)
    cluster.network.deaf.clear()
    cluster.network.cut_off.clear()
    cluster.until(lambda: len(member.told("replica.joined")) == 2, 20)
    leader.process.kill()
    store.restore(counted)
    cluster.network.restart_store()
    cluster.ask("restarted", "another start")
    cluster.until(lambda: member.told("store.lost_data"), 10)


def test_what_is_claimed_while_a_heartbeat_finds_its_way_is_reported_with_the_next():
    """The heartbeat was composed, then asked the Sentinels for the primary. What its replica claimed of the old one
    meanwhile was in no heartbeat: the new one did not know of it, and let it run a second time."""
    cluster = Cluster(remote=True)
    store = cluster.network.state = SimulatedStore()

    async def body(fire):
        await asyncio.sleep(4)

    member, other = [cluster.add(Job("job", "body", every(seconds=5)), body=body) for _ in range(2)]
    cluster.until(lambda: len(store.replicas.rows) == 2 and len(cluster.starts) == 1, 12)
    heartbeat, on_its_way = member.replica.store.heartbeat, []

    async def find_the_primary_first(request):
        on_its_way.append(request)
        while on_its_way:
            await asyncio.sleep(0.01)
        return await heartbeat(request)

    cluster.run(4.2)
    member.replica.store.heartbeat = find_the_primary_first
    member.replica.heartbeat.wake()
    cluster.until(lambda: on_its_way, 1)
    replicated = store.snapshot()
    cluster.network.cut_off.add(other.replica.id)
    cluster.until(lambda: len(cluster.starts) == 2, 2)
    store.restore(replicated)
    cluster.network.restart_store()
    cluster.ask("restarted", "another start")
    member.replica.store.heartbeat = heartbeat
    on_its_way.clear()
    cluster.network.cut_off.clear()
    cluster.run(20)
    assert set(cluster.starts.values()) == {1}, cluster.starts
    assert "lost" in {fire.state.value for fire in cluster.fires("job")}


def test_who_has_joined_again_is_not_the_one_that_was_silent():
    """Its renewals were counted anew and had come to the same number: it was taken for dead after half a heartbeat."""
    cluster = Cluster()
    member = cluster.add()
    janitor = member.replica.janitor
    cluster.until(lambda: cluster.leader, 5)
    member.process.kill()  # from here on it looks only when it is asked to
    roster = cluster.ask("roster")
    presence = ReplicaRecord("other", "host", 1, "0", roster.now, ttl=6, heartbeat=2, expires=0, renewals=12)
    janitor.watch(replace(roster, replicas=(presence,)))
    cluster.run(1.9)
    again = replace(presence, joined_at=roster.now + timedelta(seconds=1))
    janitor.watch(replace(roster, replicas=(again,)))
    assert [silent for _, silent in janitor._silent] == [0.0]


@pytest.mark.parametrize("outage", [0.01, 0.5, 3, 7, 10, 10.9, 12.3, 14.1, 33, 120])
def test_after_a_restart_of_the_server_starts_resume_within_one_ttl(outage):
    """They took a TTL from the moment at which the restart was noticed; and half a horizon, if each replica had been
    answered an attempt from before the restart."""
    ttl = 30
    cluster = Cluster(remote=True, leader_ttl=ttl, run_ttl=ttl, heartbeat=10, horizon=90)
    for _ in range(3):
        cluster.add(Job("job", "body", every(seconds=1)))
    cluster.until(lambda: len(cluster.starts) > 3, 20)
    cluster.network.store_is_up = False
    cluster.run(outage)
    cluster.network.restart_store()
    cluster.ask("restarted", "another start")
    cluster.network.store_is_up = True
    before = len(cluster.starts)
    cluster.until(lambda: len(cluster.starts) > before, ttl)


def a_loss_behind_the_clock():
    """A store that has lost data, and whose clock was set back with it: the loss is noticed and covers what was due by
    the clock as it had been."""
    cluster = Cluster(remote=True)
    store = cluster.network.state = SimulatedStore()
    member = cluster.add(Job("job", "body"))
    cluster.until(lambda: store.jobs.rows, 5)
    before = store.snapshot()
    cluster.run(10)
    cluster.network.store_offset -= 60
    lose_since(cluster, before, "second start")
    cluster.until(lambda: member.told("store.lost_data"), 10)
    return cluster, member, before


def lose_since(cluster, snapshot, name):
    cluster.network.state.restore(snapshot)
    cluster.network.restart_store()
    cluster.ask("restarted", name)


def test_a_loss_that_the_store_forgot_to_have_noticed_covers_as_much_when_it_is_noticed_again():
    """What lay ahead of the clock that was set back, and had run, was run a second time."""
    cluster, member, before = a_loss_behind_the_clock()
    covered = cluster.network.state.leader.era.lost_through
    assert covered > cluster.network.moment().wall
    lose_since(cluster, before, "third start")
    cluster.until(lambda: len(member.told("store.lost_data")) == 2, 10)
    assert cluster.network.state.leader.era.lost_through >= covered


def test_a_loss_that_the_store_forgot_to_have_noticed_is_learned_of_again():
    """It covered the same time as the one that was forgotten: replicas took it for that one, and did not declare their
    jobs again."""
    cluster, member, _ = a_loss_behind_the_clock()
    noticed = cluster.network.state.snapshot()
    cluster.run(10)
    for times, name in enumerate(("third start", "fourth start"), 2):
        lose_since(cluster, noticed, name)
        cluster.until(lambda times=times: len(member.told("store.lost_data")) == times, 10)


def test_the_simulator_leaves_the_log_as_it_was():
    log = logging.getLogger("fencepost")
    before = log.level
    simulate(1)
    assert log.level == before


async def test_what_a_leaver_claimed_before_a_restart_is_not_given_back_although_others_claim_again():
    """It was, once another replica had claimed after the restart: a run whose settle was lost with the restart ran
    again."""
    store = MemoryStore()
    for replica in ("a", "b"):
        await store.heartbeat(HeartbeatRequest(replica, 1, 30, 10, joining=True, targets=("body",)))
    await store.put_jobs([PutJob(Job("job", "body", every(hours=1)))])
    await store.add_fire(NewFire(manual_key("job", "x"), "job"))
    (claim,) = (await store.claim_fires(ClaimRequest("a", 1, 1))).claims
    restarted(store.state, moment_of(SystemClock()), "another start")
    era = (await store.heartbeat(HeartbeatRequest("b", 2, 30, 10))).leader.era
    await store.claim_fires(ClaimRequest("b", 1, 1, incarnation=era.incarnation, server=era.server))
    await store.leave("a")
    (fire,) = await store.find_fires(FireQuery(key=claim.fire.key))
    assert (fire.state, fire.reason) == (State.LOST, Reason.DATA_LOSS)


async def test_a_backfill_waits_after_a_restart_until_it_is_known_whether_data_was_lost():
    """Rows that it had added, which had run and were forgotten, were added again, later than what was noticed as lost:
    they ran again."""
    clock = HandClock()
    store = MemoryStore(clock)
    harness = Harness.with_clock(store, clock)
    await harness.join("a")
    await harness.define("job")
    until = await harness.now()
    since = until - timedelta(minutes=5)
    given = Backfill("b", every(minutes=1, anchor=since), since, until, since)
    assert await store.change_job(ChangeJob("job", "backfill", backfill=given))
    restarted(store.state, moment_of(clock), "another start")
    assert await store.plan_fires(await harness.plans()) == (False,)
    era = (await harness.heartbeat("a")).leader.era
    await store.claim_fires(ClaimRequest("a", 1, 1, incarnation=era.incarnation, server=era.server))
    assert await store.plan_fires(await harness.plans()) == (True,)
