"""Many replicas on one server: their cost when idle and at 100 fires a second, and how soon a leader is replaced."""

from __future__ import annotations

import math
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from bench.places import Place, a_place
from bench.rate import Used

from tests.cluster.harness import Cluster, quantile
from tests.servers import RedisServer

STORES = ("valkey", "postgres")
ROOT = Path(__file__).parents[1]
APP = ROOT / "bench" / "many_app.py"
RATE = 100
SETTLE = 15.0
"""Seconds from the last start until they count as idle: longer than a heartbeat."""
JOIN = 240.0
Progress = Callable[[str], object]


@dataclass(frozen=True)
class Many:
    replicas: int
    processes: int
    connections: float
    """Per replica."""
    idle_commands_per_min: float
    """Per replica. On PostgreSQL a command is a transaction."""
    idle_cpu_percent: float
    """Of a core, per replica, without the server."""
    commands_per_s: float
    """Of all, at 100 fires a second; so are the following."""
    due: int
    started: int
    doubled: int
    p50_ms: float
    p99_ms: float
    cores: float
    server_cores: float
    others_cores: float
    takeovers: tuple[float, ...]
    """Seconds from `kill -9` of the leader to the next one."""


def measure(store: str, replicas: int, processes: int, seconds: float, progress: Progress) -> Many:
    progress(f"{replicas} replicas in {processes} processes, 100 hourly jobs")
    # PostgreSQL refuses more than 100 connections by default.
    more = {"max_connections": 6 * replicas} if store == "postgres" else {}
    with a_place(store, **more) as place, counting(place) as counter:
        idle = _idle(place, counter, replicas, processes, seconds)
    progress(f"idle: {idle['idle_commands_per_min']:.1f} commands a minute and replica")
    progress(f"{replicas} replicas in {processes} processes, {RATE} fires a second")
    with a_place(store, **more) as place, counting(place) as counter:
        busy = _busy(place, counter, replicas, processes, seconds)
    progress(f"takeovers: {', '.join(f'{each:.2f}' for each in busy['takeovers'])} s")
    return Many(replicas=replicas, processes=processes, **idle, **busy)


def _idle(place: Place, counter: Counter, replicas: int, processes: int, seconds: float) -> dict[str, Any]:
    hourly: dict[str, Any] = {"jobs": 100, "period": 3600.0, "anchor": float(int(time.time())) + 1800}
    with many(place, counter, replicas, processes, **hourly) as cluster:
        settle(counter)
        connections = counter.connections()
        used = Used.so_far(cluster.alive, place)
        time.sleep(seconds)
        used = Used.so_far(cluster.alive, place) - used
        commands = counter.commands(seconds)
    return {
        "connections": connections / replicas,
        "idle_commands_per_min": commands / (seconds / 60) / replicas,
        "idle_cpu_percent": 100 * used.replicas / used.wall / replicas,
    }


def settle(counter: Counter) -> None:
    """Until the start is over: commands no longer become fewer. Sixty starts on two cores take their time."""
    time.sleep(SETTLE)
    deadline = time.monotonic() + JOIN
    before, now = math.inf, float(counter.commands(5.0))
    while now < 0.8 * before and time.monotonic() < deadline:
        before, now = now, float(counter.commands(5.0))


def _busy(place: Place, counter: Counter, replicas: int, processes: int, seconds: float) -> dict[str, Any]:
    with many(place, counter, replicas, processes, jobs=RATE, period=1.0, slots=100) as cluster:
        settle(counter)
        cluster.planned_ahead(20.0, JOIN)
        since = math.ceil(time.time()) + 3.0
        cluster.sleep_until(since)
        used = Used.so_far(cluster.alive, place)
        cluster.sleep_until(since + seconds)
        used = Used.so_far(cluster.alive, place) - used
        commands = counter.commands(seconds / 2)
        late, doubled = _lateness(cluster, since, since + seconds)
        takeovers = [_takeover(cluster) for _ in range(3 if processes > 3 else 1)]
    return {
        "commands_per_s": commands / (seconds / 2),
        "due": round(RATE * seconds),
        "started": len(late),
        "doubled": doubled,
        "p50_ms": quantile(late, 0.5) * 1000,
        "p99_ms": quantile(late, 0.99) * 1000,
        "cores": used.replicas / used.wall,
        "server_cores": used.server / used.wall,
        "others_cores": max(0.0, used.everything - used.replicas - used.server) / used.wall,
        "takeovers": tuple(takeovers),
    }


@contextmanager
def many(place: Place, counter: Counter, replicas: int, processes: int, **options: Any) -> Iterator[Cluster]:
    """So many replicas that have joined, and a leader."""
    shares = [replicas // processes + (number < replicas % processes) for number in range(processes)]
    with Cluster(place.url, place.folder, **options) as cluster:
        cluster.roster()
        counter.exclude()
        for share in shares:
            cluster.spawn(1, APP, {"MANY_SCHEDULERS": str(share), "PYTHONPATH": str(ROOT)})
        cluster.wait_for(
            lambda: len(cluster.roster().replicas) >= replicas and cluster.roster().leader.holder,
            JOIN,
            f"{replicas} replicas have joined",
        )
        yield cluster


def _lateness(cluster: Cluster, since: float, until: float) -> tuple[list[float], int]:
    first: dict[str, float] = {}
    doubled = 0
    for mark in cluster.marks():
        due = datetime.fromisoformat(mark.key.rpartition("@")[2]).timestamp()
        if mark.what == "start" and since <= due < until - 1e-6:
            doubled += mark.key in first
            first[mark.key] = min(mark.wall - due, first.get(mark.key, math.inf))
    return list(first.values()), doubled


def _takeover(cluster: Cluster) -> float:
    leader, term = cluster.leader(30), cluster.roster().leader.term
    time.sleep(2.0)  # one that has led for a while
    begun = time.monotonic()
    cluster.kill(leader)

    def led_anew() -> bool:
        lease = cluster.roster().leader
        return lease.term > term and lease.holder is not None

    cluster.wait_for(led_anew, 60, "another replica leads")
    return time.monotonic() - begun


# --- counting at the server --------------------------------------------------------------------------------


class Counter(Protocol):
    """What the server sees of the replicas."""

    def exclude(self) -> None:
        """Those that are connected now are our own."""

    def connections(self) -> int: ...

    def commands(self, seconds: float) -> int:
        """In so many seconds, from now."""


@contextmanager
def counting(place: Place) -> Iterator[Counter]:
    if isinstance(place.server, RedisServer):
        import redis

        with redis.Redis.from_url(place.url) as client:
            yield Valkey(client, (place.server.host, place.server.port))
    else:
        import psycopg

        with psycopg.connect(place.url, autocommit=True) as connection:
            yield Postgres(connection)


class Valkey:
    """A script is one command, whatever it calls. The server's own counters count its calls as well; MONITOR tells them
    apart, and costs the server something: nothing else is measured meanwhile."""

    def __init__(self, client: Any, address: tuple[str, int]) -> None:
        self._client = client
        self._address = address
        self._ours: set[str] = set()

    def exclude(self) -> None:
        self._ours = {each["id"] for each in self._client.client_list()}

    def connections(self) -> int:
        return len({each["id"] for each in self._client.client_list()} - self._ours)

    def commands(self, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        heard = bytearray()
        with socket.create_connection(self._address) as connection:
            connection.sendall(b"MONITOR\r\n")
            while (left := deadline - time.monotonic()) > 0:
                if select.select([connection], [], [], left)[0]:
                    heard += connection.recv(1 << 20)
        return sent_by_clients(bytes(heard))


def sent_by_clients(heard: bytes) -> int:
    """Commands in what MONITOR says: `+1763448000.500000 [0 127.0.0.1:1234] "get" "x"`, or `[0 lua]` for a script."""
    lines = heard.split(b"\r\n")[1:-1]  # the first is +OK, the last is cut off or empty
    return sum(b" lua] " not in line[:32] for line in lines)


class Postgres:
    """A command is a transaction. Our own are not told apart: there are two."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._ours: list[int] = []

    def exclude(self) -> None:
        self._ours = self._clients()

    def connections(self) -> int:
        return len(set(self._clients()) - set(self._ours))

    def commands(self, seconds: float) -> int:
        before = self._transactions()
        time.sleep(seconds)
        return self._transactions() - before

    def _transactions(self) -> int:
        query = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
        return int(self._connection.execute(query).fetchone()[0])

    def _clients(self) -> list[int]:
        query = "select pid from pg_stat_activity where backend_type = 'client backend'"
        return [pid for (pid,) in self._connection.execute(query)]


def summary(found: Many) -> str:
    how = "each a process" if found.replicas == found.processes else f"in {found.processes} processes"
    return (
        f"{found.replicas} replicas, {how}: {found.connections:.1f} connections each; idle "
        f"{found.idle_commands_per_min:.1f} commands a minute and {found.idle_cpu_percent:.2f} % of a core each; "
        f"{RATE} fires/s: {found.p50_ms:.1f} / {found.p99_ms:.1f} ms late, {found.started} of {found.due} started, "
        f"{found.doubled} doubled, {found.commands_per_s:.0f} commands/s, "
        f"{found.cores:.2f} + {found.server_cores:.2f} cores, others' {found.others_cores:.2f}; "
        f"kill -9 of the leader: the next after {statistics.median(found.takeovers):.2f} s "
        f"(longest {max(found.takeovers):.2f})"
    )
