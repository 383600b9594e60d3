"""The read side: looking goes past the control loop, is shared, comes a page at a time, and counts each fire once."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response

from fencepost import Scheduler, every
from fencepost.model import State
from fencepost.store.base import FireQuery
from fencepost.store.sqlite import SqliteStore
from fencepost.web.app import WebApp
from fencepost.web.prepared import Prepared
from tests.servers import valkey
from tests.web.sample import ended, triggered
from tests.web.serving import QUICK, STARTING, eventually, service


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often which operation of a SQLite store was called, and of jobs, how many were answered."""
    counted: Counter[str] = Counter()

    def counting(name: str) -> Callable[..., Any]:
        real = getattr(SqliteStore, name)

        async def call(self: SqliteStore, *args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            found = await real(self, *args, **kwargs)
            if name == "jobs":
                counted["rows"] += len(found)
            return found

        return call

    for name in ("jobs", "roster"):
        monkeypatch.setattr(SqliteStore, name, counting(name))
    return counted


def many_jobs(tmp_path: Path, number: int) -> Scheduler:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")
    for each in range(number):
        scheduler.task(id=f"job{each:03}")(_nothing)
    return scheduler


async def _nothing() -> None: ...


async def _blocked(seconds: float) -> None:
    time.sleep(seconds)


def test_a_status_does_not_wait_for_the_control_loop(tmp_path: Path) -> None:
    scheduler = many_jobs(tmp_path, 3)
    with service(scheduler) as client:
        assert client.get("/api/v1/status").status_code == 200
        scheduler.reader.forget()
        held = scheduler.lifecycle.control_thread().submit(_blocked(3.0))
        for path in ("/api/v1/status", "/api/v1/jobs?limit=2", "/api/v1/fires", "/api/v1/jobs/job001"):
            assert client.get(path).status_code == 200
        assert not held.done()
        held.result()


def test_all_who_ask_within_a_second_share_one_reading(tmp_path: Path, calls: Counter[str]) -> None:
    with service(many_jobs(tmp_path, 3)) as client, ThreadPoolExecutor(10) as threads:
        client.get("/livez")
        calls.clear()
        begun = time.monotonic()
        answers = list(threads.map(lambda _: client.get("/api/v1/status").json(), range(40)))
        readings = time.monotonic() - begun + 2
        assert len({answer["now"] for answer in answers}) <= readings
        assert calls["jobs"] <= readings


def test_a_reading_that_waited_for_the_store_is_not_shared_for_long() -> None:
    """Until the store is there the first reading waits. That was no work: the next one is as fresh as ever."""
    with valkey() as server:
        server.stop()
        scheduler = Scheduler(server.url, **QUICK)
        with service(scheduler) as client:
            assert not client.get("/scheduler/status").json()["store_answers"]
            time.sleep(2)
            server.start()
            eventually(lambda: scheduler.reader.last, STARTING)
            first = client.get("/scheduler/status").json()["as_of"]
            eventually(lambda: client.get("/scheduler/status").json()["as_of"] != first, 8.0)


def test_what_was_read_a_moment_ago_is_answered_without_the_reading_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each switch between threads may keep a fire waiting."""
    monkeypatch.setattr("fencepost.insight.reader.FRESH", 60.0)
    scheduler = many_jobs(tmp_path, 3)
    with service(scheduler) as client:
        paths = ("/api/v1/status", "/api/v1/jobs?limit=2")
        first = [client.get(path).json() for path in paths]
        thread = scheduler.reader._thread
        assert thread is not None
        held = thread.submit(_blocked(3.0))
        assert [client.get(path).json() for path in paths] == first
        assert not held.done()
        held.result()


def test_no_answer_is_compressed_on_the_loop_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs run there, too; the status of 10,000 takes 40 ms."""
    where: dict[str, str] = {}
    real_compress, real_response = gzip.compress, Prepared.response

    def compress(*args: Any, **kwargs: Any) -> bytes:
        where["compressed"] = threading.current_thread().name
        return real_compress(*args, **kwargs)

    def response(self: Prepared, request: Request) -> Response:
        where["answered"] = threading.current_thread().name
        return real_response(self, request)

    monkeypatch.setattr("fencepost.web.prepared.gzip.compress", compress)
    monkeypatch.setattr(Prepared, "response", response)
    with service(many_jobs(tmp_path, 50)) as client:
        for path in ("/api/v1/status", "/api/v1/jobs"):
            where.clear()
            packed = client.get(path, headers={"Accept-Encoding": "gzip"})
            assert packed.headers["content-encoding"] == "gzip"
            assert where["compressed"] != where["answered"]


def test_a_page_of_jobs_is_read_as_a_page(tmp_path: Path, calls: Counter[str]) -> None:
    with service(many_jobs(tmp_path, 120)) as client:
        client.get("/api/v1/status")  # its reading is shared, whoever asked for it
        seen, cursor = [], None
        while True:
            calls.clear()
            query = {"limit": "50"} | ({"cursor": cursor} if cursor else {})
            page = client.get("/api/v1/jobs", params=query).json()
            assert calls["rows"] <= 51
            seen += [job["id"] for job in page["items"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert seen == [f"job{number:03}" for number in range(120)]
        some = client.get("/api/v1/jobs", params={"q": "JOB11", "limit": "5"}).json()
        assert [job["id"] for job in some["items"]] == ["job110", "job111", "job112", "job113", "job114"]
        assert some["next"] == "job114"


def test_what_was_done_here_is_seen_at_once(tmp_path: Path) -> None:
    with service(many_jobs(tmp_path, 2)) as client:
        for paused in (True, False, True):
            client.get("/api/v1/status")
            client.post(f"/api/v1/jobs/job001/{'pause' if paused else 'resume'}").raise_for_status()
            jobs = {job["id"]: job for job in client.get("/api/v1/status").json()["jobs"]}
            assert (jobs["job001"]["paused"] is not None) is paused


def test_answers_are_compressed_for_those_who_accept_it(tmp_path: Path) -> None:
    with service(many_jobs(tmp_path, 50)) as client:
        for path in ("/api/v1/status", "/api/v1/openapi.json", "/metrics", "/widget.js"):
            packed = client.get(path, headers={"Accept-Encoding": "gzip"})
            plain = client.get(path, headers={"Accept-Encoding": "identity"})
            assert packed.headers["content-encoding"] == "gzip", path
            assert "content-encoding" not in plain.headers
            assert "Accept-Encoding" in packed.headers["vary"]
            assert int(packed.headers["content-length"]) < len(plain.content) / 2
        refused = client.get("/api/v1/status", headers={"Accept-Encoding": "gzip;q=0"})
        assert "content-encoding" not in refused.headers
        small = client.get("/livez", headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in small.headers
        with client.stream("GET", "/api/v1/events", headers={"Accept-Encoding": "gzip"}) as stream:
            assert "content-encoding" not in stream.headers


def test_lists_carry_the_line_of_an_error_and_one_fire_its_traceback_once() -> None:
    scheduler = Scheduler("memory://", **QUICK)

    @scheduler.task(id="bad")
    async def bad() -> None:
        raise ValueError("row 7 is bad")

    with service(scheduler) as client:
        key = triggered(client, "bad")
        ended(client, key)
        [listed] = client.get("/api/v1/fires").json()["items"]
        whole = client.get(f"/api/v1/fires/{key}").json()
        assert listed["error"] == listed["error_line"] == "ValueError: row 7 is bad"
        assert [attempt["error"] for attempt in listed["attempts"]] == ["ValueError: row 7 is bad"]
        assert whole["error"].startswith("Traceback")
        assert repr(whole).count("Traceback") == 1
        assert listed["late_seconds"] >= 0
        job = client.get("/api/v1/jobs/bad").json()
        assert (job["failures_in_a_row"], job["last_success_at"]) == (1, None)
        assert job["last_run"]["error_line"] == "ValueError: row 7 is bad"


async def test_a_fire_that_is_skipped_is_counted_by_one_replica(tmp_path: Path) -> None:
    """Each of three decides some of a paused job's fires. Its row grows; before, each counted all of it."""
    url = f"sqlite:///{tmp_path}/skips.db"
    schedulers = [Scheduler(url, **QUICK) for _ in range(3)]
    apps = []
    for scheduler in schedulers:
        scheduler.job(every(seconds=0.05), id="often")(_nothing)
        apps.append(WebApp(scheduler))
        await scheduler.start()
    await schedulers[0].pause("often")

    async def fires(state: State, reason: str | None = None) -> int:
        query = FireQuery(job_id="often", states=(state,), limit=1_000)
        found = await schedulers[0].reader.ask(lambda store: store.find_fires(query))
        return sum(fire.count for fire in found if fire.reason == reason)

    async with asyncio.timeout(30):
        while await fires(State.SKIPPED, "paused") < 60:
            await asyncio.sleep(0.1)
        await schedulers[0].resume("often")  # what was decided is told by now, or soon
        while await fires(State.SUCCEEDED) < 10:
            await asyncio.sleep(0.1)
        sample = ("fencepost_skips_total", {"reason": "paused"})
        counted = [app.metrics.registry.get_sample_value(*sample) or 0 for app in apps]
        assert sum(counted) == await fires(State.SKIPPED, "paused")
        assert sum(1 for each in counted if each) > 1, "only one of them decided anything"
    for scheduler in schedulers:
        await scheduler.stop()


@pytest.mark.parametrize(
    ("setting", "named"), [({}, 200), ({"metrics_jobs": 3}, 3), ({"metrics_jobs": 0}, 0)]
)
def test_only_so_many_jobs_have_labels_of_their_own(setting: dict[str, Any], named: int) -> None:
    scheduler = Scheduler("memory://", **setting)
    for number in range(210):
        scheduler.job(every(hours=1), id=f"job{number:03}")(_nothing)
    with service(scheduler) as client:
        text = eventually(lambda: client.get("/metrics").text)
        names = {
            line.partition('job_name="')[2].partition('"')[0]
            for line in text.splitlines()
            if 'job_name="' in line
        }
        assert len(names - {"(others)"}) == named
        assert "_created" not in text


def test_a_page_beyond_the_last_job_is_empty(client: httpx2.Client) -> None:
    assert client.get("/api/v1/jobs", params={"cursor": "zzzz"}).json() == {"next": None, "items": []}
