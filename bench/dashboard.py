"""What the dashboard costs: the first byte of each page over 10,000 jobs and a million fires, and what ten people who
watch it live do to jobs that are due each second.

Half of the fires are hourly ones of all jobs, half of them of ten jobs that fire each second. Some failed, some were
skipped.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from urllib.parse import quote

import psycopg
from bench.places import Place
from bench.readers import ASKED, BATCH, ROOT, TICKS, Service, Situation, given_priority, service_of, shown

from fencepost import every
from fencepost.model import Job, State
from fencepost.store.base import ChangeJob, FireQuery, PutJob
from fencepost.store.urls import store_from_url

STORES = ("sqlite", "postgres")
WATCHERS = 10
APART, PAUSE = 5, 1.6
"""Times, and seconds in between: what is read is shared for a second, or ten times as long as it took."""
WATCHED = "/"
INSTEAD = ("/api/v1/overview", "/api/v1/lanes")
"""What is watched if there is no such page."""
DENSE = 10
"""Jobs that have fired each second."""
JOB = "other00042"

API = (
    "/api/v1/overview",
    "/api/v1/overview?span=1d",
    "/api/v1/lanes",
    "/api/v1/lanes?span=10m",
    "/api/v1/lanes?span=1d",
    "/api/v1/lanes?span=30d",
    "/api/v1/lanes?q=other001&span=1d",
    "/api/v1/fires/summary?bucket=1h&since=7d",
    "/api/v1/fires?limit=50",
    "/api/v1/fires?limit=50&state=failed",
    "/api/v1/jobs?limit=50",
    "/api/v1/jobs/dense3",
    f"/api/v1/jobs/{JOB}/why",
    f"/api/v1/jobs/{JOB}/preview?count=10",
    "/api/v1/replicas",
    "/api/v1/terms",
    "/api/v1/doctor",
    "/api/v1/history",
)
PAGES = (
    "/",
    "/?span=30d",
    "/jobs",
    f"/jobs/{JOB}",
    "/jobs/dense3",
    "/jobs?q=other00",
    "/fires",
    "/fires?state=failed",
    "/fires/{fire}",
    "/load",
    "/cluster",
    "/audit",
    "/doctor",
)
"""Pages of the dashboard. A page that is not served is reported. `{fire}`: the key of one that has run."""

SQLITE_FIRES = """
with recursive n (i) as (select 0 union all select i + 1 from n where i < :fires - 1),
    fires (job, due, i) as (
        select case when i < :dense then 'dense' || (i % 10) else printf('other%05d', i % :jobs) end,
            case when i < :dense then :now - i / 10 - 1 else :now - (i - :dense) / :jobs * 3600 - i % 3600 - 1 end, i
        from n)
insert into fencepost_fires
    select job || '@' || strftime('%Y-%m-%dT%H:%M:%S', due, 'unixepoch') || '.000000Z', job, due * 1000000, 1,
        case when i % 53 = 0 then 'failed' when i % 97 = 0 then 'skipped' else 'succeeded' end,
        case when i % 53 = 0 then 'raised an exception' when i % 97 = 0 then 'overlap' end, null, 1, null, 1, 'earlier',
        1, 1, 0, 1, null, due * 1000000 + 5000, due * 1000000 + 20000, 0, null
    from fires
"""
POSTGRES_FIRES = """
insert into fencepost.final (job_id, due_at, name, state, reason, count, token, replica, claim_no, attempt, crashes,
        settled, started_at, finished_at, cancel_requested)
    select case when i < %(dense)s then 'dense' || (i %% 10) else 'other' || lpad((i %% %(jobs)s)::text, 5, '0') end,
        due, '', case when i %% 53 = 0 then 'failed' when i %% 97 = 0 then 'skipped' else 'succeeded' end,
        case when i %% 53 = 0 then 'raised an exception' when i %% 97 = 0 then 'overlap' end,
        1, 1, 'earlier', 1, 1, 0, 1, due + 5000, due + 20000, false
    from (select i, (case when i < %(dense)s then %(now)s - i / 10 - 1
            else %(now)s - (i - %(dense)s) / %(jobs)s * 3600 - i %% 3600 - 1 end) * 1000000::bigint as due
        from generate_series(0, %(fires)s - 1) as i) n
"""


@dataclass(frozen=True)
class FirstByte:
    path: str
    status: int
    median_ms: float
    """Of 20, one after the other: most are answered from what was read for the one before."""
    first_ms: float
    """The first of them."""
    apart_ms: float
    """The median of some with a pause in between: read anew, unless a reading takes more than a tenth of it."""


@dataclass(frozen=True)
class Dashboard:
    jobs: int
    fires: int
    realtime: bool
    pages: tuple[FirstByte, ...]
    alone: Situation
    watched: Situation
    answers: int
    bad_answers: int

    @property
    def p99_grows_by_ms(self) -> float:
        return self.watched.p99_ms - self.alone.p99_ms


def measure(
    place: Place, jobs: int, fires: int, seconds: float, paths: Sequence[str], told: Callable[[str], None]
) -> Dashboard:
    begun = time.monotonic()
    asyncio.run(_fill(place.url, jobs, fires))
    told(f"{jobs} jobs and {fires} fires stored after {time.monotonic() - begun:.0f} s")
    if place.server is not None:
        given_priority(place.server.pid)
    with service_of(place, TICKS) as service:
        realtime = given_priority(service.process.pid)
        told(f"quiet after {service.warmed_up():.0f} s")
        pages = []
        fire = quote(asyncio.run(_a_fire(place.url)), safe="")
        for path in paths:
            pages.append(_first_byte(service, path.replace("{fire}", fire)))
            told(page(pages[-1]))
        alone = service.situation("without watchers", seconds)
        told(shown(alone))
        parts = [WATCHED] if service.asked(WATCHED)[0] == 200 else [*INSTEAD]
        load = _watchers(service, seconds, parts)
        try:
            time.sleep(4)
            watched = service.situation(f"{WATCHERS} people watch {' and '.join(parts)}", seconds)
            told(shown(watched))
            counted = json.loads(load.communicate(timeout=60)[0])
        finally:
            load.kill()
    return Dashboard(jobs, fires, realtime, tuple(pages), alone, watched, counted["answers"], counted["bad"])


async def _a_fire(url: str) -> str:
    store = store_from_url(url)
    await store.open()
    try:
        [fire] = await store.find_fires(FireQuery(job_id=JOB, states=(State.SUCCEEDED,), limit=1))
        return fire.key
    finally:
        await store.close()


def _first_byte(service: Service, path: str) -> FirstByte:
    asked = [service.asked(path) for _ in range(ASKED)]
    apart = []
    for _ in range(APART):
        time.sleep(PAUSE)
        apart.append(service.asked(path)[1])
    took = [seconds for _, seconds in asked]
    return FirstByte(path, asked[-1][0], median(took) * 1000, took[0] * 1000, median(apart) * 1000)


def _watchers(service: Service, seconds: float, watched: Sequence[str]) -> subprocess.Popen[bytes]:
    how = [*map(str, (service.port, seconds + 8, WATCHERS)), *watched]
    return subprocess.Popen(
        [sys.executable, "-m", "bench.dashboard_load", *how], cwd=ROOT, stdout=subprocess.PIPE
    )


async def _fill(url: str, jobs: int, fires: int) -> None:
    store = store_from_url(url)
    await store.open()
    for begin in range(0, jobs, BATCH):
        numbers = range(begin, min(jobs, begin + BATCH))
        await store.put_jobs([PutJob(Job(f"other{n:05}", "quick", every(hours=1))) for n in numbers])
    await store.put_jobs([PutJob(Job(f"dense{n}", "elsewhere", every(seconds=1))) for n in range(DENSE)])
    for n in range(DENSE):
        await store.change_job(ChangeJob(f"dense{n}", "pause"))
    await store.close()
    values = {"jobs": jobs, "fires": fires, "dense": fires // 2, "now": int(time.time())}
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
            db.execute(SQLITE_FIRES, values)
    else:
        with psycopg.connect(url, autocommit=True) as db:
            db.execute(POSTGRES_FIRES, values)
            db.execute("vacuum analyze fencepost.final")


def page(found: FirstByte) -> str:
    status = "" if found.status == 200 else f", answered {found.status}"
    rest = f"the first {found.first_ms:.0f} ms, {PAUSE} s apart {found.apart_ms:.0f} ms"
    return f"{found.median_ms:6.1f} ms ({rest}) {found.path}{status}"


def summary(found: Dashboard) -> str:
    priority = "real-time" if found.realtime else "normal"
    slowest = max(found.pages, key=lambda each: each.median_ms)
    missing = [each.path for each in found.pages if each.status != 200]
    not_served = f"; not answered with 200: {', '.join(missing)}" if missing else ""
    return (
        f"{found.jobs} jobs, {found.fires} fires, {priority} priority: the slowest first byte of {len(found.pages)} "
        f"pages after {slowest.median_ms:.1f} ms ({slowest.path}){not_served}; with {WATCHERS} people who watch "
        f"({found.answers} answers, {found.bad_answers} of them not 200) lateness p99 of {found.watched.fires} fires "
        f"grows by {found.p99_grows_by_ms:.1f} ms, from {found.alone.p99_ms:.1f}, and {found.watched.not_run} fires "
        "are not run"
    )
