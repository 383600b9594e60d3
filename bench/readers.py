"""What reading costs: a job each second, first alone, then with one stream open, then beside many who look.

10,000 jobs and a million fires are in the store. Both situations are measured in one run; compare them.
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
BATCH = 1_000
ASKED = 20
TICKS = os.sysconf("SC_CLK_TCK")
STORES = ("sqlite", "postgres")

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
    fires: int
    not_run: int
    """Skipped or missed."""
    cores: float
    """Of the service."""


@dataclass(frozen=True)
class Readers:
    jobs: int
    fires: int
    jobs_page_ms: float
    status_ms: float
    alone: Situation
    streaming: Situation
    watched: Situation
    answers: int
    bad_answers: int

    @property
    def p99_grows_by_ms(self) -> float:
        return self.watched.p99_ms - self.alone.p99_ms

    @property
    def stream_cores(self) -> float:
        return self.streaming.cores - self.alone.cores


def measure(place: Place, jobs: int, fires: int, seconds: float, told: Callable[[str], None]) -> Readers:
    begun = time.monotonic()
    asyncio.run(_fill(place.url, jobs, fires))
    told(f"{jobs} jobs and {fires} fires stored after {time.monotonic() - begun:.0f} s")
    with _service(place.url) as (port, process):
        for seconds_to_plan in (10, 20):  # planning changes every job once, and what has changed is read anew
            time.sleep(seconds_to_plan)
            _asked(port, "/api/v1/status")
        alone = _situation(place.url, "nobody looks", process, seconds)
        told(_shown(alone))
        with _load(port, seconds + 3, 0, 1):
            streaming = _situation(place.url, "one stream", process, seconds)
        told(_shown(streaming))
        first = [_first_byte(port, path) for path in ("/api/v1/jobs?limit=50", "/api/v1/status")]
        with _load(port, seconds + 3) as load:
            watched = _situation(place.url, "many look", process, seconds)
        told(_shown(watched))
        counted = json.loads(load.communicate(timeout=60)[0])
    return Readers(jobs, fires, *first, alone, streaming, watched, counted["answers"], counted["bad"])


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
def _service(url: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    port = Port()
    command = [
        sys.executable,
        "-m",
        "fencepost",
        "serve",
        "bench.reader_app:scheduler",
        "--port",
        str(port.number),
    ]
    environment = {**os.environ, "FENCEPOST_STORE": url, "FENCEPOST_LOG_LEVEL": "warning"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        _until_ready(port.number)
        yield port.number, process
    finally:
        process.terminate()
        process.wait(30)
        port.release()


def _until_ready(port: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if _asked(port, "/readyz")[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise TimeoutError("the service is not ready")


@contextmanager
def _load(port: int, seconds: float, *how: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "bench.reader_load", str(port), str(seconds), *map(str, how)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        time.sleep(2)
        yield process
        process.wait(60)
    finally:
        process.kill()


def _first_byte(port: int, path: str) -> float:
    return median(_asked(port, path)[1] for _ in range(ASKED)) * 1000


def _asked(port: int, path: str) -> tuple[int, float]:
    """The status, and seconds to the first byte."""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        begun = time.monotonic()
        connection.sendall(head.encode())
        first = connection.recv(16)
        took = time.monotonic() - begun
        while connection.recv(1 << 20):
            pass
    return int(first[9:12]), took


def _situation(url: str, what: str, process: subprocess.Popen[bytes], seconds: float) -> Situation:
    since, used = datetime.now(UTC), _cpu(process.pid)
    time.sleep(seconds)
    cores = (_cpu(process.pid) - used) / seconds
    until = datetime.now(UTC)
    time.sleep(1)
    query = FireQuery(job_id="tick", since=since, until=until, limit=10_000)
    fires = [fire for fire in asyncio.run(_found(url, query)) if fire.due_at >= since]
    late = [(fire.started_at - fire.due_at).total_seconds() for fire in fires if fire.started_at is not None]
    unrun = sum(fire.count for fire in fires if fire.state in (State.SKIPPED, State.MISSED))
    return Situation(what, quantile(late, 0.5) * 1000, quantile(late, 0.99) * 1000, len(late), unrun, cores)


async def _found(url: str, query: FireQuery):  # type: ignore[no-untyped-def]
    store: Store = store_from_url(url)
    await store.open()
    try:
        return await store.find_fires(query)
    finally:
        await store.close()


def _cpu(pid: int) -> float:
    """Seconds that it has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _shown(found: Situation) -> str:
    return (
        f"{found.what}: {found.p50_ms:.1f} / {found.p99_ms:.1f} ms late (p50 / p99), {found.fires} fires, "
        f"{found.not_run} not run, the service took {found.cores:.2f} cores"
    )


def summary(found: Readers) -> str:
    return (
        f"{found.jobs} jobs, {found.fires} fires: first byte of a page of 50 jobs after {found.jobs_page_ms:.0f} ms, "
        f"of the status after {found.status_ms:.0f} ms; one stream takes {found.stream_cores:.1%} of a core; with many "
        f"readers ({found.answers} answers, {found.bad_answers} of them not 200) lateness p99 grows by "
        f"{found.p99_grows_by_ms:.1f} ms, and {found.watched.not_run} fires are not run"
    )
