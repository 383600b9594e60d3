"""`make soak`: three real processes under load, calm, under faults and deploys; every fire is judged.

Exits 1 if anything was doubled, unaccounted for, lost without a reason, or more than a second late.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from soak.places import EMBEDDED, SERVERS, STORES, Place, missing, place, tags

from tests.cluster.harness import Cluster, Process, Verdict
from tests.servers import cut_after

TTL = 2.0
SETTINGS: dict[str, Any] = {"leader_ttl": TTL, "run_ttl": TTL, "heartbeat": 0.5}
LOAD: dict[str, Any] = {"period": 10.0, "body": 0.2, "kind": "mixed", "slots": 30}
"""No job is due again before a run of its that was cut off is settled."""
LEAD_IN = 5.0
RATES = {"sqlite": 20, "file": 20}
"""Fires a second; 100 on servers."""
LATEST = {"clock steps": None, "rolling restart": 0.5}
"""Seconds by which a start may be late; elsewhere one."""


@dataclass
class Stage:
    store: str
    name: str
    verdict: Verdict
    violations: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=[*STORES, "all", "embedded", "servers"], default="all")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each stage")
    parser.add_argument("--stage", choices=STAGES, help="this one alone")
    options = parser.parse_args()
    stages: list[Stage] = []
    groups = {"all": STORES, "embedded": EMBEDDED, "servers": tuple(SERVERS)}
    for store in groups.get(options.store, (options.store,)):
        with tempfile.TemporaryDirectory(prefix="fencepost-soak-") as folder:
            reason = missing(store, Path(folder))
        if reason:
            print(f"{store}: skipped, {reason}", flush=True)
            continue
        for name, run in STAGES.items():
            if options.stage not in (None, name):
                continue
            stage = carry_out(store, name, run, options.seconds)
            if stage is not None:
                stages.append(stage)
    show(stages)
    return 0 if stages and not any(stage.violations for stage in stages) else 1


Told = Iterator[Verdict | str]
Run = Callable[[Place, float], Told]


def carry_out(store: str, name: str, run: Run, seconds: float) -> Stage | None:
    begun = time.monotonic()
    violations: list[str] = []
    verdict: Verdict | None = None
    with tempfile.TemporaryDirectory(prefix="fencepost-soak-") as folder, place(store, Path(folder)) as where:
        try:
            for told in run(where, seconds):
                if isinstance(told, Verdict):
                    verdict = told
                    violations += told.violations(latest=LATEST.get(name, 1.0))
                elif told.startswith("skipped"):
                    print(f"{store}, {name}: {told}", flush=True)
                    return None
                else:
                    violations += [told.removeprefix("violation: ")] * told.startswith("violation: ")
                    print(f"{store}, {name}: {time.monotonic() - begun:5.1f} s  {told}", flush=True)
        except AssertionError as error:
            violations.append(str(error))
    return Stage(store, name, verdict or Verdict(), violations)


@contextmanager
def three(where: Place, rate: int | None = None, **options: Any) -> Iterator[Cluster]:
    """Three processes at the moment from which on fires are due: a thousand jobs take a while to be declared."""
    rate = rate or RATES.get(where.store, 100)
    load = {**LOAD, "jobs": round(rate * LOAD["period"]), "anchor": time.time() + LEAD_IN}
    with Cluster(where.url, where.folder, reader_url=where.direct, **load, **SETTINGS, **options) as cluster:
        cluster.start(3)
        cluster.sleep_until(cluster.anchor)
        yield cluster


# --- the stages -------------------------------------------------------------------------------------------


def calm(where: Place, seconds: float) -> Told:
    with three(where) as cluster:
        yield f"three processes, {seconds:.0f} s"
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(10.0, left))
            yield f"{sum(mark.what == 'start' for mark in cluster.marks())} starts"
        yield from ended(cluster)


def faults(where: Place, seconds: float) -> Told:
    with three(where) as cluster:
        pause = max(2.0, (seconds - 3 * TTL) / 5)
        time.sleep(pause)
        for name, choose in (("the leader", cluster.leader), ("a worker", cluster.worker)):
            yield f"kill -9 of {name}, {cluster.kill(choose()).pid}, and a new one"
            cluster.start(1)
            time.sleep(pause)
        leader = cluster.leader()
        code = cluster.terminate(leader)
        yield f"SIGTERM to the leader, {leader.pid}: exit code {code}, and a new one"
        if code != 0:
            yield f"violation: exit code {code} after SIGTERM"
        cluster.start(1)
        time.sleep(pause)
        yield from stop_and_go(cluster)
        time.sleep(pause)
        if where.server is not None:
            where.server.restart()
            yield "the server has been restarted"
            time.sleep(pause)
        yield from ended(cluster)


def rolling_restart(where: Place, seconds: float) -> Told:
    """Each of three processes is stopped gracefully and replaced, in turn, five times over."""
    with three(where, rate=50) as cluster:
        time.sleep(3)
        for number in range(1, 6):
            for process in list(cluster.alive):
                code = cluster.terminate(process)
                if code != 0:
                    yield f"violation: exit code {code} after SIGTERM"
                cluster.start(1)
            yield f"round {number}: all three replaced"
        for told in ended(cluster):
            if isinstance(told, Verdict) and told.states["lost"]:
                yield f"violation: {told.states['lost']} lost"
            yield told


def lost_replies(where: Place, seconds: float) -> Told:
    """Every third reply to a claim and every fifth to a settle is cut off after the server has committed."""
    if where.proxy is None:
        yield "skipped, there is no network"
        return
    claim, settle = tags(where.store)
    claims = where.proxy.rule(cut_after, claim, every=3)
    settles = where.proxy.rule(cut_after, settle, every=5)
    with three(where) as cluster:
        time.sleep(seconds)
        yield f"cut off: {claims.done} replies to claims, {settles.done} to settles"
        where.proxy.clear()
        if not claims.done or not settles.done:
            yield "violation: nothing was cut off"
        yield from ended(cluster)


def stop_and_go(cluster: Cluster) -> Iterator[str]:
    leader, term = cluster.leader(), cluster.roster().leader.term
    stopped = time.monotonic()
    cluster.stop(leader)
    yield f"SIGSTOP of the leader, {leader.pid}, for {3 * TTL:.0f} s (caught in a transaction: {cluster.caught})"
    cluster.wait_for(lambda: cluster.roster().leader.term > term, 3 * TTL, "somebody else leads")
    yield f"taken over after {time.monotonic() - stopped:.2f} s"
    time.sleep(max(0.0, stopped + 3 * TTL - time.monotonic()))
    cluster.resume(leader)
    cluster.wait_for(lambda: "leader.lost" in leader.told(), 2 * TTL, "the resumed leader steps down")
    yield "the resumed leader has stepped down"


def clock_steps(where: Place, seconds: float) -> Told:
    """The clock goes forward by 8 s, back, back by another 5 s, and forward again, all within half a minute.
    What was due in a stretch that comes twice ran the first time."""
    if where.server is not None:
        yield "skipped, due times and leases are judged by the server's clock"
        return
    shim = compiled(where.folder)
    if shim is None:
        yield "skipped, no C compiler (cc)"
        return
    with stepping(where.folder) as step:
        env = {"LD_PRELOAD": str(shim), "SKEW_FILE": str(where.folder / "skew")}
        with three(where, env=env) as cluster:
            before = cluster.roster()
            for offset, length in ((0, 5), (8, 5), (0, 9), (-5, 6), (0, 7)):
                step(offset)
                yield f"the clock is {offset:+d} s off"
                time.sleep(length)
            after = cluster.roster()
            if (after.leader.holder, after.leader.term) != (before.leader.holder, before.leader.term):
                yield "violation: leadership changed with the clock"
            if {replica.id for replica in after.replicas} != {replica.id for replica in before.replicas}:
                yield "violation: a replica was declared dead"
            yield from fences(cluster.processes)
            yield from ended(cluster)


def fences(processes: list[Process]) -> Iterator[str]:
    for process in processes:
        for line in process.told().splitlines():
            if "fenced" in line or "replica.expired" in line or "Traceback" in line:
                yield f"violation: {line}"


def ended(cluster: Cluster) -> Told:
    verdict = cluster.finish(patience=2 * TTL + 3)
    for process in cluster.processes:
        if "Traceback" in process.told():
            yield f"violation: {process.pid} told of an unexpected error:\n{process.told()[-1500:]}"
    yield str(verdict)
    yield verdict


# --- what they need -----------------------------------------------------------------------------------------


def compiled(folder: Path) -> Path | None:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    shim = folder / "skew.so"
    source = Path(__file__).parent / "skew.c"
    subprocess.run(
        [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True
    )
    return shim


@contextmanager
def stepping(folder: Path) -> Iterator[Callable[[int], None]]:
    """A function that sets how many seconds the clock of the processes is off."""
    path = folder / "skew"
    path.write_bytes(bytes(8))
    with path.open("r+b", buffering=0) as file:

        def step(seconds: int) -> None:
            file.seek(0)
            file.write(struct.pack("=q", seconds * 1_000_000_000))

        yield step


def show(stages: list[Stage]) -> None:
    table = Table(title="Three processes", title_justify="left")
    for column in ("store", "stage", "due", "ran", "lost", "other", "doubled", "unaccounted"):
        table.add_column(column, justify="left" if column in ("store", "stage") else "right")
    table.add_column("late p50/p99/max ms", justify="right")
    table.add_column("longest gap after", justify="left")
    table.add_column("", justify="left")
    for stage in stages:
        verdict = stage.verdict
        lost = len(verdict.lost_in_faults) + len(verdict.lost_unexplained)
        other = sum(verdict.states.values()) - verdict.ran - lost
        late = " / ".join(f"{verdict.late(share) * 1000:.0f}" for share in (0.5, 0.99, 1.0))
        gaps = ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in verdict.gaps)
        counts = (verdict.due, verdict.ran, lost, other, len(verdict.doubled), len(verdict.unaccounted))
        outcome = "VIOLATED" if stage.violations else "holds"
        table.add_row(stage.store, stage.name, *map(str, counts), late, gaps, outcome)
    Console(width=max(140, Console().width)).print(table)
    for stage in stages:
        for violation in stage.violations:
            print(f"{stage.store}, {stage.name}: {violation}")


STAGES: dict[str, Run] = {
    "calm": calm,
    "faults": faults,
    "clock steps": clock_steps,
    "rolling restart": rolling_restart,
    "lost replies": lost_replies,
}

if __name__ == "__main__":
    sys.exit(main())
