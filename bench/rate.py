"""How many fires a second hold, how late they start, and what one costs."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from bench.places import Place
from bench.pulse import Pulse

from fencepost.model import fire_key
from tests.cluster.harness import Cluster, Process, quantile

SLOTS = 100
LEAD_IN = 2.0
"""Seconds of fires before those that are measured."""
HOLDS_UNTIL = 0.25
"""Seconds of lateness at the 99th percentile up to which a rate counts as held."""


@dataclass(frozen=True)
class Rate:
    rate: int
    seconds: float
    replicas: int
    due: int
    started: int
    doubled: int
    p50_ms: float
    p99_ms: float
    worst_ms: float
    cpu_us_per_fire: float
    """Of the replicas."""
    server_us_per_fire: float
    cores: float
    """Used by all replicas and the server together."""
    others_cores: float
    """Used meanwhile by everything else on the machine: the noise in this row."""
    pulse_p99_ms: float
    """How late a process was meanwhile that only woke up and wrote 200 bytes to the disk: more of the noise."""
    pulse_worst_ms: float
    claims_per_fire: float
    """Claim attempts of all replicas, those that found nothing included."""
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.started == self.due and not self.doubled and self.p99_ms <= HOLDS_UNTIL * 1000

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}


def measure(
    place: Place, rate: int, seconds: float, replicas: int, env: Mapping[str, str] | None = None
) -> Rate:
    """`rate` jobs, each once a second, spread evenly over it. The first fire lies far enough ahead for the
    jobs to be registered and planned; what is measured begins two seconds later. `env`: more for the replicas."""
    begin = math.ceil(time.time()) + lead(rate)
    with Cluster(
        place.url, place.folder, jobs=rate, period=1.0, anchor=begin, buffered=True, env=env, slots=SLOTS
    ) as cluster:
        processes = cluster.spawn(replicas)
        since = begin + LEAD_IN
        cluster.sleep_until(begin)
        unready = "" if place.url.startswith("memory:") else not_ready(cluster, rate, replicas)
        cluster.sleep_until(since)
        gone = [process for process in processes if not process.alive]
        if gone:
            return _nothing(rate, seconds, replicas, f"a replica ended: {gone[0].told()[-300:]}")
        claims, used = claims_so_far(cluster), Used.so_far(processes, place)
        with Pulse(place.folder) as pulse:
            cluster.sleep_until(since + seconds)
        used = Used.so_far(processes, place) - used
        claims = claims_so_far(cluster) - claims
        time.sleep(1.0)
        note = f"{unready} {ended(processes)}".strip()
        lateness: dict[str, float] = {}
        doubled = 0
        for mark in cluster.marks():
            due = datetime.fromisoformat(mark.key.rpartition("@")[2]).timestamp()
            if since <= due < since + seconds - 1e-6:
                doubled += mark.key in lateness
                lateness.setdefault(mark.key, mark.wall - due)
    late = list(lateness.values())
    return Rate(
        rate=rate,
        seconds=seconds,
        replicas=replicas,
        due=round(rate * seconds),
        started=len(late),
        doubled=doubled,
        p50_ms=quantile(late, 0.5) * 1000,
        p99_ms=quantile(late, 0.99) * 1000,
        worst_ms=quantile(late, 1.0) * 1000,
        cpu_us_per_fire=used.replicas / max(1, len(late)) * 1e6,
        server_us_per_fire=used.server / max(1, len(late)) * 1e6,
        cores=(used.replicas + used.server) / used.wall,
        others_cores=max(0.0, used.everything - used.replicas - used.server) / used.wall,
        pulse_p99_ms=quantile(pulse.late, 0.99) * 1000,
        pulse_worst_ms=quantile(pulse.late, 1.0) * 1000,
        claims_per_fire=claims / max(1, len(late)),
        note=note,
    )


def claims_so_far(cluster: Cluster) -> float:
    """Attempts are numbered per replica, and the store keeps the number of the last one."""
    if cluster.url.startswith("memory:"):
        return float("nan")
    return float(sum(replica.claim_no for replica in cluster.roster().replicas))


def lead(rate: int) -> float:
    """Seconds to start the processes, register the jobs and plan the first minute, with time to spare."""
    return round(min(40.0, 5 + rate / 100))


def not_ready(cluster: Cluster, rate: int, replicas: int) -> str:
    """A start that takes too long is told apart from a rate that does not hold."""
    joined = len(cluster.roster().replicas)
    if joined < replicas:
        return f"only {joined} replicas had joined when the first fire fell due;"
    last = datetime.fromtimestamp(cluster.anchor, UTC) + timedelta(seconds=(rate - 1) / rate)
    if cluster.reader.fire(fire_key(f"job{rate - 1:05}", last)) is None:
        return "not all was planned when the first fire fell due;"
    return ""


def ended(processes: list[Process]) -> str:
    """Ask all to stop; what is worth telling about how they did."""
    for process in processes:
        process.popen.terminate()
    for process in processes:
        try:
            process.popen.wait(40)
        except subprocess.TimeoutExpired:
            return "a replica did not stop within 40 s; its starts are not counted"
    told = [line for process in processes for line in process.told().splitlines()]
    errors = [line for line in told if " ERROR " in line or "Traceback" in line]
    return errors[0][24:] if errors else ""


class Running(Protocol):
    @property
    def pid(self) -> int: ...


@dataclass(frozen=True)
class Used:
    """Seconds: of processors, and by the wall."""

    replicas: float
    server: float
    everything: float
    wall: float

    @classmethod
    def so_far(cls, processes: Sequence[Running], place: Place) -> Used:
        replicas = sum(cpu_seconds(process.pid) for process in processes)
        server = family_seconds(place.server.pid) if place.server else 0.0
        return cls(replicas, server, machine_seconds(), time.monotonic())

    def __sub__(self, other: Used) -> Used:
        return Used(
            self.replicas - other.replicas,
            self.server - other.server,
            self.everything - other.everything,
            self.wall - other.wall,
        )


def family_seconds(pid: int) -> float:
    """Of a server, its processes, and those that have ended."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    seconds = 0.0
    for child in children:
        with contextlib.suppress(OSError):  # it has just ended: the next line counts it
            seconds += cpu_seconds(int(child))
    return seconds + cpu_seconds(pid, with_ended=True)


def cpu_seconds(pid: int, with_ended: bool = False) -> float:
    """Of a process, to the nanosecond: /proc rounds to hundredths, too coarse for twenty fires a second.
    `with_ended`: also of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ended = sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK") if with_ended else 0.0
    return time.clock_gettime(~pid << 3 | 2) + ended  # what clock_getcpuclockid(3) makes of a pid


def machine_seconds() -> float:
    """CPU time of everything on this machine, with what the hypervisor took."""
    user, nice, system, _, _, irq, softirq, steal, *_ = (
        Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return sum(map(int, (user, nice, system, irq, softirq, steal))) / os.sysconf("SC_CLK_TCK")


def _nothing(rate: int, seconds: float, replicas: int, note: str) -> Rate:
    nan, due = float("nan"), round(rate * seconds)
    return Rate(rate, seconds, replicas, due, 0, 0, nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, note)
