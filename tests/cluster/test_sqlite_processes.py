"""Several real processes on one SQLite file, with real signals, in real time."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fencepost.errors import ConfigurationError, StoreCorrupt
from fencepost.model import Attempt, FireRecord, JobEvent, State, fire_key
from fencepost.model.triggers import every
from fencepost.store import local
from fencepost.store.local import refuse_network_file_system
from fencepost.store.sqlite import SqliteStore
from tests.cluster.harness import Cluster, Fault, Mark, by_then, due_by, judge

FORKING = Path(__file__).parent / "apps" / "forking.py"
SHORT = {"leader_ttl": 1.5, "run_ttl": 1.5, "heartbeat": 0.5}
LONG = {"leader_ttl": 60, "run_ttl": 60, "heartbeat": 20}
LATE = 0.75
"""Seconds a start may be late on a machine that runs another test on its other core."""


@pytest.fixture
def cluster_of(tmp_path):
    """Makes a cluster that ends with the test. To start three processes takes a while: the first fires are due then."""
    made: list[Cluster] = []

    def make(**options) -> Cluster:
        options.setdefault("anchor", time.time() + 2.0)
        made.append(Cluster(f"sqlite:///{tmp_path}/shared.db", tmp_path, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


pytestmark = [pytest.mark.cluster, pytest.mark.timely]


# --- one fire, one run --------------------------------------------------------------------------------


def test_three_processes_run_every_fire_once(cluster_of):
    # Overlap is not what is tested here: a busy machine must not skip a fire for it.
    apart = {"LOAD_OVERLAP": "allow(5)"}
    begin = time.time() + 2.0
    cluster = cluster_of(jobs=20, period=0.5, body=0.02, kind="mixed", anchor=begin, env=apart, **SHORT)
    cluster.start(3)
    cluster.sleep_until(begin + 3)
    verdict = cluster.finish()
    assert not verdict.violations(latest=LATE), verdict
    assert verdict.due > 100, verdict
    assert verdict.ran == verdict.due, verdict
    assert len({mark.pid for mark in cluster.marks()}) == 3, "all three take part"


def test_a_trigger_from_another_process_starts_at_once(cluster_of):
    cluster = cluster_of(**LONG)
    cluster.start(2)
    time.sleep(0.5)  # both have gone to sleep
    for _ in range(3):
        sent = time.time()
        key = cluster.trigger("quick")
        [start] = cluster.wait_for(lambda key=key: cluster.starts(key), 2, "it starts")
        assert start.wall - sent < 0.5
        cluster.wait_for(lambda key=key: cluster.reader.fire(key).state == "succeeded", 2, "it is settled")


def test_a_job_that_blocks_the_event_loop_keeps_its_claim_and_delays_no_thread(cluster_of):
    ttl = 1.0
    cluster = cluster_of(
        jobs=10, period=0.5, kind="thread", long=4 * ttl, leader_ttl=ttl, run_ttl=ttl, heartbeat=0.3
    )
    cluster.start(2)
    key = cluster.trigger("block")
    cluster.wait_for(lambda: cluster.reader.fire(key).state.final, 4 * ttl + 2, "the blocking job ends")
    assert cluster.reader.fire(key).state == "succeeded"
    assert len(cluster.starts(key)) == 1
    verdict = cluster.finish()
    assert not verdict.violations(latest=LATE), verdict


# --- death and handover -------------------------------------------------------------------------------


def test_kill_9_of_the_leader_is_noticed_whatever_the_ttl(cluster_of):
    cluster = cluster_of(execute_on="leader", **LONG)
    cluster.start(3)
    leader = cluster.leader()
    key = cluster.trigger("long")
    cluster.wait_for(lambda: cluster.starts(key), 2, "the leader runs it")
    killed = time.monotonic()
    cluster.kill(leader)
    assert cluster.leader() is not leader
    cluster.wait_for(lambda: cluster.reader.fire(key).state == "lost", 2, "its run is settled")
    assert time.monotonic() - killed < 1.0
    assert leader.pid not in {replica.pid for replica in cluster.roster().replicas}


def test_kill_9_of_a_worker_settles_its_run_whatever_the_ttl(cluster_of):
    cluster = cluster_of(**LONG)
    cluster.start(2)
    keys = [cluster.trigger("long"), cluster.trigger("block")]
    for key in keys:
        cluster.wait_for(lambda key=key: cluster.starts(key), 2, "it starts")
    worker = cluster.worker()
    theirs = [key for key in keys if cluster.starts(key)[0].pid == worker.pid]
    killed = time.monotonic()
    cluster.kill(worker)
    for key in theirs:
        cluster.wait_for(lambda key=key: cluster.reader.fire(key).state == "lost", 2, "its run is settled")
    cluster.wait_for(lambda: len(cluster.roster().replicas) == 1, 2, "it is forgotten")
    assert time.monotonic() - killed < 1.0


def test_sigterm_hands_leadership_over_at_once_and_loses_nothing(cluster_of):
    # Overlap is not what is tested here either.
    apart = {"LOAD_OVERLAP": "allow(5)"}
    cluster = cluster_of(jobs=20, period=0.5, body=0.1, kind="mixed", env=apart, **LONG)
    cluster.start(3)
    time.sleep(1)
    leader = cluster.leader()
    begun = time.monotonic()
    leader.popen.terminate()
    cluster.wait_for(lambda: cluster.leader() is not leader, 2, "somebody else leads")
    assert time.monotonic() - begun < 1.0
    assert leader.popen.wait(5) == 0
    time.sleep(1)
    verdict = cluster.finish()
    assert not verdict.violations(latest=LATE), verdict
    assert verdict.ran == verdict.due, verdict
    assert all(process.popen.returncode == 0 for process in cluster.processes)


def test_a_stopped_leader_is_replaced_and_steps_down_when_it_goes_on(cluster_of):
    ttl = SHORT["leader_ttl"]
    # Each job fires once in the test: a run cut off by the stop is in nobody's way.
    cluster = cluster_of(jobs=160, period=20, body=0.05, **SHORT)
    cluster.start(3)
    cluster.planned_ahead(2 * ttl)
    leader = cluster.leader()
    # Whoever has run something knows the plan. A leader stopped right after its very first one may not have said it.
    cluster.wait_for(lambda: any(mark.pid != leader.pid for mark in cluster.marks()), 5, "others run")
    term = cluster.roster().leader.term
    stopped = time.monotonic()
    cluster.stop(leader)
    cluster.wait_for(lambda: cluster.roster().leader.term > term, 3 * ttl, "somebody else leads")
    assert time.monotonic() - stopped < 1.5 * ttl + 0.5
    time.sleep(max(0.0, stopped + 3 * ttl - time.monotonic()))
    cluster.resume(leader)
    cluster.wait_for(lambda: "leader.lost" in leader.told(), 2, "it steps down")
    cluster.wait_for(lambda: len(cluster.roster().replicas) == 3, 2, "it joins again")
    assert cluster.leader() is not leader
    verdict = cluster.finish()
    assert not verdict.violations(latest=LATE), verdict


# --- forks --------------------------------------------------------------------------------------------


def test_a_forked_child_does_not_keep_the_proof_of_life(cluster_of):
    cluster = cluster_of(env={"LOAD_FORK": "unrelated"}, **LONG)
    [forking] = cluster.start(1, FORKING)
    assert cluster.leader() is forking
    cluster.start(1)
    killed = time.monotonic()
    cluster.kill(forking)  # its child lives on
    cluster.leader()
    assert time.monotonic() - killed < 1.0


def test_a_forked_child_can_start_its_own(cluster_of):
    cluster = cluster_of(env={"LOAD_FORK": "own"}, jobs=20, period=0.5, **SHORT)
    [parent] = cluster.start(1, FORKING)
    cluster.wait_for(lambda: len(cluster.roster().replicas) == 2, 5, "parent and child take part")
    time.sleep(2)
    verdict = cluster.finish()
    assert not verdict.violations(latest=LATE), verdict
    assert len({mark.pid for mark in cluster.marks()}) == 2
    assert parent.popen.returncode == 0, parent.told()


def test_workers_forked_from_a_preloaded_application_run_every_fire_once(cluster_of):
    cluster = cluster_of(env={"LOAD_FORK": "preload"}, jobs=20, period=0.5, **SHORT)
    [parent] = cluster.spawn(1, FORKING)
    cluster.wait_for(lambda: len(cluster.roster().replicas) == 3, 5, "three workers take part")
    time.sleep(2.5)
    verdict = cluster.finish()
    assert not verdict.violations(latest=LATE), verdict
    assert len({mark.pid for mark in cluster.marks()}) == 3
    assert parent.popen.returncode == 0, parent.told()


# --- the judge ------------------------------------------------------------------------------------------


T0 = datetime(2026, 11, 15, 12, tzinfo=UTC)


def judged(*marks: tuple[str, int, int, float], state=State.SUCCEEDED, faults=(), **fire):
    """One fire due at T0. A mark: what, token, pid, seconds after T0."""
    record = FireRecord(fire_key("j", T0), "j", T0, state=state, **{"token": 1, "replica": "r1", **fire})
    written = [
        Mark(what, record.key, token, pid, f"r{pid}", T0.timestamp() + at, at)
        for what, token, pid, at in marks
    ]
    return judge({"j": [T0]}, [record], written, faults, {"r1": 1, "r2": 2})


def attempt(token: int, outcome: str) -> Attempt:
    return Attempt(token, "r1", T0, T0, outcome)


def test_the_judge_finds_nothing_wrong_with_one_run():
    verdict = judged(("start", 1, 1, 0.1), ("end", 1, 1, 0.2))
    assert not verdict.violations(latest=0.2)
    assert verdict.violations(latest=0.05)
    assert (verdict.due, verdict.ran) == (1, 1)


def test_the_judge_sees_what_ran_twice():
    assert judged(("start", 1, 1, 0), ("start", 1, 2, 0)).twice_with_one_token
    assert judged(("start", 1, 1, 0), ("start", 2, 2, 0), token=2).doubled
    again = judged(("start", 1, 1, 0), ("start", 2, 2, 0), token=2, attempts=(attempt(1, "lost"),))
    assert not again.doubled


def test_the_judge_sees_what_is_not_accounted_for():
    assert judged(state=State.PENDING, token=0).unaccounted
    assert judge({"j": [T0]}, [], [], [], {}).unaccounted
    assert judge({"j": []}, [FireRecord(fire_key("j", T0), "j", T0)], [], [], {}).invented
    assert judged().invented, "succeeded without a start"


@pytest.mark.parametrize(("count", "invented"), [(4, False), (5, True), (3, True)])
def test_the_judge_leaves_out_what_joined_a_row_after_the_end(count, invented):
    defined = JobEvent("j", T0, "defined", 1, since=T0, trigger=every(seconds=1, anchor=T0).to_json())
    first, last = T0 + timedelta(seconds=1), T0 + timedelta(seconds=4)
    row = FireRecord(fire_key("j", first), "j", first, state=State.SKIPPED, count=count, last_due_at=last)
    until = T0 + timedelta(seconds=2.5)
    part = by_then(row, until, [defined])
    verdict = judge({"j": due_by([defined], until)}, [part], [], [], {})
    assert bool(verdict.violations()) is invented, verdict


@pytest.mark.parametrize(
    ("fault", "explained"),
    [
        (Fault("kill -9", 1, T0.timestamp() + 1), True),
        (Fault("SIGTERM", 1, T0.timestamp() + 1), False),
        (Fault("kill -9", 2, T0.timestamp() + 1), False),
        (Fault("kill -9", 1, T0.timestamp() + 5), False),  # it had ended by then
    ],
)
def test_the_judge_asks_why_a_run_was_lost(fault, explained):
    marks = [("start", 1, 1, 0.0)]
    if fault.begun > T0.timestamp() + 2:
        marks.append(("end", 1, 1, 2.0))
    verdict = judged(*marks, state=State.LOST, faults=[fault], started_at=T0)
    assert bool(verdict.lost_in_faults) is explained
    assert bool(verdict.lost_unexplained) is not explained


# --- files that are not as they should be ------------------------------------------------------------------


@pytest.fixture
async def database(tmp_path):
    """A database that has been used, closed."""
    path = tmp_path / "used.db"
    store = SqliteStore(path)
    await store.open()
    await store.close()
    return path


@pytest.mark.parametrize("damage", ["garbage", "first half", "one page", "holes"])
async def test_a_damaged_file_gives_a_clear_error_and_is_left_as_it_is(database, damage):
    content = database.read_bytes()
    damaged = {
        "garbage": b"this is no database " * 500,
        "first half": content[: len(content) // 2],
        "one page": content[:4096],
        "holes": content[:1024] + b"\x5a" * (len(content) - 1024),
    }[damage]
    for extra in database.parent.glob("used.db-*"):
        shutil.rmtree(extra) if extra.is_dir() else extra.unlink()
    database.write_bytes(damaged)
    store = SqliteStore(database)
    with pytest.raises(StoreCorrupt, match=r"used\.db.*(restore|move it away)"):
        await _open_and_look(store)
    assert database.read_bytes() == damaged


async def _open_and_look(store: SqliteStore) -> None:
    try:
        await store.open()
        await store.roster()
        await store.jobs()
    finally:
        await store.close()


async def test_a_newer_schema_is_refused_with_a_remedy(database):
    db = sqlite3.connect(database)
    db.execute("update fencepost_meta set value = '999' where name = 'schema'")
    db.commit()
    db.close()
    store = SqliteStore(database)
    with pytest.raises(ConfigurationError, match="format 999.*upgrade Fencepost"):
        await store.open()
    await store.close()


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / {tmp}/share rw,relatime shared:2 - {kind} server:/export rw
31 30 0:41 / {tmp}/share/local\\040disk rw,relatime - xfs /dev/sdb1 rw
"""


@pytest.mark.parametrize(
    ("kind", "folder", "refused"),
    [
        *itertools.product(
            ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs"], ["share/app"], [True]
        ),
        ("nfs4", "share", True),
        ("nfs4", "shared", False),
        ("nfs4", "share/local disk/app", False),
        ("nfs4", "", False),
        ("tmpfs", "share/app", False),
    ],
)
def test_network_file_systems_are_refused(tmp_path, monkeypatch, kind, folder, refused):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(tmp=tmp_path, kind=kind))
    monkeypatch.setattr(local, "Path", lambda _: mounts)
    if refused:
        with pytest.raises(ConfigurationError, match=f"network file system \\({kind}\\).*local disk"):
            refuse_network_file_system(tmp_path / folder)
    else:
        refuse_network_file_system(tmp_path / folder)
