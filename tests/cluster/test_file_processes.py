"""The file store between real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fencepost.model import State
from fencepost.store.base import Campaign, FireQuery, HeartbeatRequest, NewFire, PutJob, Suspect
from fencepost.store.file import FileStore
from fencepost.testing.conformance import job_of

pytestmark = pytest.mark.cluster

PROCESSES = 4
FIRES = 600

HEAD = """
import asyncio, sys, time
from fencepost.model import State
from fencepost.store.base import *
from fencepost.store.file import FileStore

path, me, snapshot_bytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = FileStore(path, snapshot_bytes=snapshot_bytes, keep_fires=20)

async def join():
    await store.open()
    await store.heartbeat(HeartbeatRequest(me, 1, 30, 10, joining=True, targets=("work",)))
    print("ready", flush=True)
    sys.stdin.readline()
"""

CLAIMER = (
    HEAD
    + """
async def main():
    await join()
    for number in range(1, 10_000):
        claims = (await store.claim_fires(ClaimRequest(me, number, 1))).claims
        if not claims:
            break
        fire = claims[0].fire
        print(fire.key, flush=True)
        await store.update_claims(me, [Settle(fire.key, fire.token, State.SUCCEEDED)])
    print("state", hash_of(list(store._journal.state.dump())), store._journal.header.generation)

def hash_of(rows):
    import hashlib, json
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

asyncio.run(main())
"""
)

HOLDER = (
    HEAD
    + """
async def main():
    await join()
    (claim,) = (await store.claim_fires(ClaimRequest(me, 1, 1))).claims
    print(claim.fire.key, flush=True)
    time.sleep(60)

asyncio.run(main())
"""
)


def started(script: str, path: Path, name: str, snapshot_bytes: int = 1_000_000) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, str(path), name, str(snapshot_bytes)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert said(process) == "ready"
    return process


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    process.stdin.write("\n")
    process.stdin.flush()


async def add_fires(store: FileStore, count: int) -> set[str]:
    jobs = [f"job{n}" for n in range(max(1, count // 100))]
    await store.put_jobs([PutJob(job_of(id, overlap="allow(500)")) for id in jobs])
    keys = [(f"{job}!{n}", job) for job in jobs for n in range(min(count, 100))]
    await asyncio.gather(*(store.add_fire(NewFire(key, job)) for key, job in keys))
    return {key for key, _ in keys}


@pytest.mark.parametrize("snapshot_bytes", [pytest.param(1_000_000, marks=pytest.mark.slow), 20_000])
async def test_every_fire_is_claimed_once(tmp_path: Path, snapshot_bytes: int) -> None:
    """With the small limit each process writes snapshots while the others go on."""
    store = FileStore(tmp_path)
    await store.open()
    keys = await add_fires(store, FIRES)
    claimers = [started(CLAIMER, tmp_path, f"r{n}", snapshot_bytes) for n in range(PROCESSES)]
    for claimer in claimers:
        go(claimer)
    outputs = [claimer.communicate(timeout=120)[0].splitlines() for claimer in claimers]
    assert [claimer.returncode for claimer in claimers] == [0] * PROCESSES
    claimed = Counter(key for output in outputs for key in output[:-1])
    assert claimed == Counter(keys)
    fires = await store.find_fires(FireQuery(limit=10 * FIRES))
    assert {fire.key for fire in fires if fire.state is State.SUCCEEDED and fire.token} == keys
    assert len(fires) == FIRES
    per_job = Counter((fire.job_id, fire.token) for fire in fires)
    assert set(per_job.values()) == {1}, "tokens of a job are given out once"
    generations = max(int(output[-1].split()[2]) for output in outputs)
    assert (generations > 5) == (snapshot_bytes == 20_000)
    # Whoever was first to find nothing left stopped there; now all are the same.
    other = FileStore(tmp_path)
    await other.open()
    await store.roster()
    assert list(other._journal.state.dump()) == list(store._journal.state.dump())
    await store.close()
    await other.close()


async def test_a_killed_process_is_proven_dead_and_a_stopped_one_is_not(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.open()
    await add_fires(store, 1)
    pulse = await store.heartbeat(HeartbeatRequest("leader", 1, 30, 10, joining=True, campaign=Campaign(30)))
    holder = started(HOLDER, tmp_path, "holder")
    go(holder)
    key = said(holder)
    assert (await store.evidence(["holder", "leader", "nobody"])).dead == frozenset()
    os.kill(holder.pid, signal.SIGSTOP)
    assert (await store.evidence(["holder"])).dead == frozenset()
    holder.kill()
    holder.wait()
    assert (await store.evidence(["holder", "leader"])).dead == {"holder"}
    swept = await store.sweep("leader", pulse.leader.term, [Suspect("holder", 0, 0.0, dead=True)])
    assert swept is not None
    assert [(fire.key, fire.state) for fire in swept.settled] == [(key, State.LOST)]
    assert (await store.evidence(["holder"])).dead == frozenset()
    await store.close()
    assert holder.stdin
    assert holder.stdout
    holder.stdin.close()
    holder.stdout.close()


WRITER = (
    HEAD
    + """
async def main():
    await join()
    for n in range(100_000):
        await store.add_fire(NewFire(f"job0!{me}-{n}", "job0"))
        print(n, flush=True)
        await store.cancel_fire(f"job0!{me}-{n}")

asyncio.run(main())
"""
)


async def test_what_a_killed_writer_was_told_is_there(tmp_path: Path) -> None:
    """Killed in the middle of writing, again and again: nothing acknowledged is lost, and nothing is stuck."""
    store = FileStore(tmp_path, snapshot_bytes=5_000, keep_fires=20)
    await store.open()
    await add_fires(store, 1)
    for round in range(5):
        name = f"w{round}"
        writer = started(WRITER, tmp_path, name, snapshot_bytes=5_000)
        go(writer)
        told = [said(writer) for _ in range(10 + 7 * round)]
        writer.kill()
        rest, _ = writer.communicate()
        told += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        for n in (int(told[0]), int(told[-1])):
            assert await store.find_fires(FireQuery(key=f"job0!{name}-{n}"))
        found = await store.find_fires(FireQuery(job_id="job0", limit=100_000))
        mine = {fire.key for fire in found if f"!{name}-" in fire.key}
        assert mine >= {f"job0!{name}-{int(n)}" for n in told}
    fresh = FileStore(tmp_path)
    await fresh.open()
    await store.roster()
    assert list(fresh._journal.state.dump()) == list(store._journal.state.dump())
    await fresh.close()
    await store.close()


ADDER = (
    HEAD
    + """
async def main():
    await join()
    await store.add_fire(NewFire("job0!hint", "job0"))

asyncio.run(main())
"""
)


async def test_a_hint_reaches_another_process(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.open()
    await add_fires(store, 1)
    adder = started(ADDER, tmp_path, "adder")
    while await store.wait(0.1):  # what was there before
        pass
    waiting = asyncio.create_task(store.wait(30))
    await asyncio.sleep(0)
    go(adder)
    assert await asyncio.wait_for(waiting, 30) is True
    adder.communicate(timeout=120)
    await store.close()
