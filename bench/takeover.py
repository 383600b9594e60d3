"""How long nobody leads: after `kill -9` and SIGTERM of the leader with the default TTL, and after SIGSTOP."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.places import Place

from tests.cluster.harness import Cluster, Process

TTL = 30.0
SHORT_TTL = 2.0
"""For SIGSTOP: nothing shortens that, it takes as long as the TTL says."""
PATIENCE = 60.0


@dataclass(frozen=True)
class Takeover:
    how: str
    ttl: float
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def measure(place: Place, times: int) -> list[Takeover]:
    return [
        _after(place, "kill -9", TTL, times, lambda process: process.popen.kill()),
        _after(place, "SIGTERM", TTL, times, lambda process: process.popen.terminate()),
        _after(place, "SIGSTOP", SHORT_TTL, max(1, times // 3), _stop),
    ]


def _after(place: Place, how: str, ttl: float, times: int, harm: Callable[[Process], None]) -> Takeover:
    seconds = []
    settings: dict[str, Any] = {"leader_ttl": ttl, "run_ttl": ttl, "heartbeat": ttl / 3}
    with Cluster(place.url, place.folder, jobs=10, period=10.0, **settings) as cluster:
        cluster.start(3)
        for _ in range(times):
            leader = cluster.leader(PATIENCE)
            term = cluster.roster().leader.term
            time.sleep(0.3)  # so that no two are alike in what they have just done
            begun = time.monotonic()
            harm(leader)
            cluster.wait_for(lambda term=term: _led_anew(cluster, term), PATIENCE, "somebody else leads")  # type: ignore[misc]
            seconds.append(time.monotonic() - begun)
            leader.popen.kill()  # one that was stopped, too
            leader.popen.wait()
            cluster.start(1)
    return Takeover(how, ttl, tuple(seconds))


def _led_anew(cluster: Cluster, term: int) -> bool:
    lease = cluster.roster().leader
    return lease.term > term and lease.holder is not None


def _stop(process: Process) -> None:
    os.kill(process.pid, signal.SIGSTOP)
