"""What reading costs: jobs that are due each second, first alone, then beside many who look; and one open stream.

10,000 jobs and a million fires are in the store. All is measured in one run of one service; compare the situations.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import psycopg
from bench.places import Place

from fencepost import every
from fencepost.model import Job, State
from fencepost.store.base import FireQuery, PutJob, Store
from fencepost.store.urls import store_from_url
from tests.cluster.harness import quantile
from tests.servers.ports import Port

ROOT = Path(__file__).parents[1]
BATCH = 250
ASKED = 20
QUIET_FOR = 3
"""Samples of the service's CPU in a row that differ by less than `STEADY` of a core."""
SAMPLE = 2.0
STEADY = 0.03
WARM_UP = 90.0
STORES = ("sqlite", "postgres")
MARKS = "marks"
TICKS = 10
"""Jobs that are due each second, where lateness is measured."""

SQLITE_FIRES = """
with recursive n (i) as (select 0 union all select i + 1 from n where i < :fires - 1),
    fires (job, due) as (
        select printf('other%05d', i % :jobs), :start + i / :jobs * 60 from n)
insert into fencepost_fires
    select job || '@' || strftime('%Y-%m-%dT%H:%M:%S', due, 'unixepoch') || '.000000Z', job, due * 1000000, 1,
        'succeeded', null, null, 1, null, 1, 'earlier', 1, 1, 0, 1, null, due * 1000000 + 5000, due * 1000000 + 20000,
        0, null
    from fires
"""
POSTGRES_FIRES = """
insert into fencepost.final (job_id, due_at, name, state, count, token, replica, claim_no, attempt, crashes, settled,
        started_at, finished_at, cancel_requested)
    select 'other' || lpad((i %% %(jobs)s)::text, 5, '0'), due, '', 'succeeded', 1, 1, 'earlier', 1, 1, 0, 1,
        due + 5000, due + 20000, false
    from (select i, (%(start)s + i / %(jobs)s * 60) * 1000000::bigint as due
        from generate_series(0, %(fires)s - 1) as i) n
"""


@dataclass(frozen=True)
class Situation:
    what: str
    p50_ms: float
    p99_ms: float
    """From the due time to the first line of the body."""
    fires: int
    not_run: int
    """Skipped or missed."""
    cores: float
    """Of the service."""


@dataclass(frozen=True)
class Readers:
    jobs: int
    fires: int
    realtime: bool
    """Whether the service, and the server of the store, had real-time priority."""
    jobs_page_ms: float
    status_ms: float
    stream_cores: float
    """What one open stream takes, beside one job that is due each second."""
    alone: Situation
    watched: Situation
    answers: int
    bad_answers: int

    @property
    def p99_grows_by_ms(self) -> float:
        return self.watched.p99_ms - self.alone.p99_ms


def measure(place: Place, jobs: int, fires: int, seconds: float, told: Callable[[str], None]) -> Readers:
    begun = time.monotonic()
    asyncio.run(_fill(place.url, jobs, fires))
    told(f"{jobs} jobs and {fires} fires stored after {time.monotonic() - begun:.0f} s")
    if place.server is not None:
        given_priority(place.server.pid)
    with service_of(place, ticks=1) as service:
        realtime = given_priority(service.process.pid)
        told(f"quiet after {service.warmed_up():.0f} s")
        unwatched = service.usual_cores(seconds)
        with service.readers(seconds, clients=0, streams=1):
            streaming = service.usual_cores(seconds)
        told(f"one job a second took {unwatched:.1%} of a core, with one stream {streaming:.1%}")
    with service_of(place, TICKS) as service:
        given_priority(service.process.pid)
        told(f"quiet after {service.warmed_up():.0f} s")
        first = [service.first_byte(path) for path in ("/api/v1/jobs?limit=50", "/api/v1/status")]
        alone = service.situation("nobody looks", seconds)
        told(shown(alone))
        with service.readers(seconds) as load:
            watched = service.situation("many look", seconds)
        told(shown(watched))
        counted = json.loads(load.communicate(timeout=60)[0])
    stream = streaming - unwatched
    return Readers(jobs, fires, realtime, *first, stream, alone, watched, counted["answers"], counted["bad"])


class Service:
    def __init__(self, place: Place, port: int, process: subprocess.Popen[bytes]) -> None:
        self._place = place
        self.port = port
        self.process = process

    def _until_ready(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                if self.asked("/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise TimeoutError("the service is not ready")

    def warmed_up(self) -> float:
        """Until every job is planned and has been read since; returns how many seconds it took."""
        begun = time.monotonic()
        self._until_ready()
        self._until_quiet(begun + WARM_UP)
        planned = datetime.now(UTC)
        while datetime.fromisoformat(self._status()["as_of"]) < planned:
            time.sleep(1)
        self._until_quiet(begun + WARM_UP)
        return time.monotonic() - begun

    def _until_quiet(self, deadline: float) -> None:
        samples: list[float] = []
        while len(samples) < QUIET_FOR or max(samples[-QUIET_FOR:]) - min(samples[-QUIET_FOR:]) > STEADY:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service is not quiet after {WARM_UP:.0f} s: {samples}")
            samples.append(self.cores_during(SAMPLE))

    def cores_during(self, seconds: float) -> float:
        used = _cpu(self.process.pid)
        time.sleep(seconds)
        return (_cpu(self.process.pid) - used) / seconds

    def usual_cores(self, seconds: float) -> float:
        """The median of short samples: all jobs are read now and then, in one of them or in two, whoever looks."""
        return median(self.cores_during(SAMPLE) for _ in range(round(seconds / SAMPLE)))

    def situation(self, what: str, seconds: float) -> Situation:
        since = datetime.now(UTC)
        cores = self.cores_during(seconds)
        until = datetime.now(UTC)
        time.sleep(1)
        marks = [line.split() for line in (self._place.folder / MARKS).read_text().splitlines()]
        late = [float(late) for due, late in marks if since.timestamp() <= float(due) < until.timestamp()]
        unrun = asyncio.run(_not_run(self._place.url, since, until))
        return Situation(
            what, quantile(late, 0.5) * 1000, quantile(late, 0.99) * 1000, len(late), unrun, cores
        )

    @contextmanager
    def readers(
        self, seconds: float, clients: int = 5, streams: int = 50
    ) -> Iterator[subprocess.Popen[bytes]]:
        how = map(str, (self.port, seconds + 4, clients, streams))
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.reader_load", *how], cwd=ROOT, stdout=subprocess.PIPE
        )
        try:
            time.sleep(2)
            yield process
            process.wait(60)
        finally:
            process.kill()

    def first_byte(self, path: str) -> float:
        return median(self.asked(path)[1] for _ in range(ASKED)) * 1000

    def _status(self) -> dict[str, str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/status", timeout=60) as answer:
            status: dict[str, str] = json.load(answer)
        return status

    def asked(self, path: str) -> tuple[int, float]:
        """The status, and seconds to the first byte."""
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            begun = time.monotonic()
            connection.sendall(head.encode())
            first = connection.recv(16)
            took = time.monotonic() - begun
            while connection.recv(1 << 20):
                pass
        return int(first[9:12]), took


async def _fill(url: str, jobs: int, fires: int) -> None:
    store = store_from_url(url)
    await store.open()
    trigger = every(hours=1)
    for begin in range(0, jobs, BATCH):
        numbers = range(begin, min(jobs, begin + BATCH))
        await store.put_jobs([PutJob(Job(f"other{n:05}", "quick", trigger)) for n in numbers])
    await store.close()
    values = {"jobs": jobs, "fires": fires, "start": int(time.time()) - (fires // jobs + 10) * 60}
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
            db.execute(SQLITE_FIRES, values)
    else:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(POSTGRES_FIRES, values)
            db.execute("vacuum analyze fencepost.final")


@contextmanager
def service_of(place: Place, ticks: int) -> Iterator[Service]:
    port = Port()
    command = [sys.executable, "-m", "fencepost", "serve", "bench.reader_app:scheduler"]
    environment = {
        **os.environ,
        "FENCEPOST_STORE": place.url,
        "FENCEPOST_LOG_LEVEL": "warning",
        "READERS_TICKS": str(ticks),
        "READERS_MARKS": str(place.folder / MARKS),
    }
    process = subprocess.Popen([*command, "--port", str(port.number)], cwd=ROOT, env=environment)
    try:
        yield Service(place, port.number, process)
    finally:
        process.terminate()
        process.wait(30)
        port.release()


def given_priority(pid: int) -> bool:
    """Before it has threads or children, which inherit it. On a machine that others use the scheduler's choice of who
    runs next would be measured else."""
    try:
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError):  # no such thing here, or not for us
        return False
    return True


async def _not_run(url: str, since: datetime, until: datetime) -> int:
    store: Store = store_from_url(url)
    await store.open()
    try:
        number = 0
        for tick in range(TICKS):
            query = FireQuery(
                job_id=f"tick{tick}", states=(State.SKIPPED, State.MISSED), since=since, until=until
            )
            number += sum(fire.count for fire in await store.find_fires(query) if fire.due_at >= since)
        return number
    finally:
        await store.close()


def _cpu(pid: int) -> float:
    """Seconds that its threads have used."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def shown(found: Situation) -> str:
    return (
        f"{found.what}: {found.p50_ms:.1f} / {found.p99_ms:.1f} ms late (p50 / p99), {found.fires} fires, "
        f"{found.not_run} not run, the service took {found.cores:.2f} cores"
    )


def summary(found: Readers) -> str:
    priority = "real-time" if found.realtime else "normal"
    return (
        f"{found.jobs} jobs, {found.fires} fires, {priority} priority: first byte of a page of 50 jobs after "
        f"{found.jobs_page_ms:.1f} ms, of the status after {found.status_ms:.1f} ms; one stream takes "
        f"{found.stream_cores:.1%} of a core; with many readers ({found.answers} answers, {found.bad_answers} of them "
        f"not 200) lateness p99 of {found.watched.fires} fires grows by {found.p99_grows_by_ms:.1f} ms, from "
        f"{found.alone.p99_ms:.1f}, and {found.watched.not_run} fires are not run"
    )
