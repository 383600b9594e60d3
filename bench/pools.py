"""Whether a pool without replicas costs the others anything: ten fires a second in the pool `default`, first alone,
then beside a thousand fires that are due in a pool where no replica is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
from bench.growth import RATE, started_within
from bench.places import Place

from fencepost import at
from fencepost.model import Job
from fencepost.store.base import PutJob
from tests.cluster.harness import Cluster, quantile
from tests.servers import PostgresServer, RedisServer

STORES = ("sqlite", "postgres", "valkey")
WAITING = 1000
PERIOD = 10.0
REPLICAS = 3
PATIENCE = 120.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Beside:
    waiting: int
    """Fires due in the empty pool."""
    fires: int
    """Run meanwhile in the pool `default`."""
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """Of all replicas, per second."""
    asked: float
    """Commands of Valkey, transactions of PostgreSQL, per second; 0 for SQLite."""


def measure(place: Place, seconds: float, told: Callable[[str], None]) -> list[Beside]:
    with Cluster(place.url, place.folder, jobs=round(RATE * PERIOD), period=PERIOD) as cluster:
        cluster.start(REPLICAS)
        time.sleep(2 * PERIOD)
        alone = _observed(cluster, place, 0, seconds)
        told(f"alone: {alone}")
        _let_wait(cluster)
        time.sleep(PERIOD)
        return [alone, _observed(cluster, place, WAITING, seconds)]


def _let_wait(cluster: Cluster) -> None:
    soon = at(datetime.now(UTC) + timedelta(seconds=5))
    puts = [PutJob(Job(f"gpu{number:04}", "quick", soon, execute_on="gpu")) for number in range(WAITING)]
    cluster.reader.ask(lambda store: store.put_jobs(puts))

    def all_due() -> bool:
        time.sleep(0.5)
        now = datetime.now(UTC)
        found = cluster.reader.fires(now - timedelta(minutes=5), now)
        return sum(fire.job_id.startswith("gpu") for fire in found) == WAITING

    cluster.wait_for(all_due, PATIENCE, f"{WAITING} fires are due in the pool gpu")


def _observed(cluster: Cluster, place: Place, waiting: int, seconds: float) -> Beside:
    since, cpu, asked = time.time(), _cpu(cluster), _asked(place)
    time.sleep(seconds + 0.5)
    took = time.time() - since
    cpu, asked = (_cpu(cluster) - cpu) / took, (_asked(place) - asked) / took
    late = started_within(cluster, since, seconds)
    p50, p99 = (quantile(late, each) * 1000 for each in (0.5, 0.99))
    return Beside(waiting, len(late), p50, p99, cpu * 1000, asked)


def _cpu(cluster: Cluster) -> float:
    return sum(_seconds_of(process.pid) for process in cluster.alive)


def _asked(place: Place) -> float:
    """Of the server, so far."""
    if isinstance(place.server, RedisServer):
        return float(place.server.ask("INFO stats").partition(b"total_commands_processed:")[2].split()[0])
    if isinstance(place.server, PostgresServer):
        with psycopg.connect(place.url) as connection:
            row = connection.execute(
                "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database"
            ).fetchone()
            return float(row[0]) if row else 0.0
    return 0.0


def _seconds_of(pid: int) -> float:
    """Also of processes that it has started and that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:15]) / TICKS


def summary(found: list[Beside]) -> str:
    alone, beside = found
    return (
        f"beside {beside.waiting} fires of an empty pool: late p50 {alone.p50_ms:.1f} -> {beside.p50_ms:.1f} ms, "
        f"p99 {alone.p99_ms:.1f} -> {beside.p99_ms:.1f} ms; CPU of the replicas {alone.cpu_ms:.0f} -> "
        f"{beside.cpu_ms:.0f} ms/s; asked of the store {alone.asked:.0f} -> {beside.asked:.0f} times/s"
    )
