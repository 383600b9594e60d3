"""The worker's side, for real: orders through an engine of threads, on a SQLite file, or through the service."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost import Fire, Retry, Scheduler, engine_worker, every
from fencepost.engine_worker import Verdict, carry_out
from fencepost.engine_worker.gate import StoreGate
from fencepost.errors import ConfigurationError, StoreUnavailable
from fencepost.model import FireRecord, State, job_of
from fencepost.model.fires import Remote
from fencepost.runs.engines import Order, Ref, Sighting, ref_of
from fencepost.store import urls
from fencepost.store.base import ChangeJob, FireQuery, Start, Update
from tests.engines.thread_engine import ThreadEngine
from tests.web.serving import QUICK, eventually, service

SETTINGS: dict[str, Any] = {**QUICK, "drain_timeout": 5}


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.setenv("FENCEPOST_STORE", f"sqlite:///{tmp_path}/engines.db")
    return os.environ["FENCEPOST_STORE"]


def scheduler_with(engine: ThreadEngine, url: str, **more: Any) -> Scheduler:
    return Scheduler(store=url, engines={"threads": engine}, **SETTINGS, **more)


def finding(scheduler: Scheduler):
    """What the workers run: the tasks of this scheduler, without importing it by name."""
    return lambda text: carry_out(text, scheduler.registry.get(Order.from_json(text).target).function)


async def run_once(scheduler: Scheduler, task: Any, **asked: Any):
    async with scheduler:
        handle = await scheduler.trigger(task, **asked)
        return await handle.wait(timeout=60)


async def test_a_body_runs_on_the_engine_and_reports_as_everywhere(url):
    engine = ThreadEngine()
    scheduler = scheduler_with(engine, url)
    engine.work = finding(scheduler)

    @scheduler.task(executor="threads", engine={"queue": "reports"})
    def report(fire: Fire, region: str) -> dict[str, str]:
        fire.report(done=1, total=2)
        fire.save({"half": region}).wait()
        logging.getLogger("app").warning("for %s", region)
        return {"region": region}

    fire = await run_once(scheduler, report, args={"region": "ch"})
    assert (fire.state, fire.result, fire.checkpoint) == (State.SUCCEEDED, {"region": "ch"}, {"half": "ch"})
    assert fire.replica == "engine:threads"
    assert fire.output is not None
    assert "for ch" in fire.output
    (order,) = engine.orders
    assert (order.options, order.ref) == ({"queue": "reports"}, ref_of("default", fire.key, fire.token))


async def test_a_store_that_is_away_when_a_worker_opens_it_does_not_fail_the_fire(url, monkeypatch):
    """Seen with Dask: a connection that was cut at the wrong moment failed fires whose bodies had not started."""
    engine = ThreadEngine()
    scheduler = scheduler_with(engine, url)
    engine.work = finding(scheduler)
    away = [1, 2, 3]

    def store_from_url(*given: Any) -> Any:
        store = real(*given)
        opened = store.open

        async def open_later() -> None:
            if away:
                away.pop()
                raise StoreUnavailable("Connection closed by server.")
            await opened()

        monkeypatch.setattr(store, "open", open_later)
        return store

    real = urls.store_from_url
    monkeypatch.setattr(engine_worker, "store_from_url", store_from_url)

    @scheduler.task(executor="threads")
    def pay() -> None: ...

    fire = await run_once(scheduler, pay)
    assert (fire.state, away) == (State.SUCCEEDED, [])
    assert engine.verdicts == ["succeeded"]


async def test_a_run_whose_job_is_removed_at_the_gate_is_given_back(url, monkeypatch):
    """It has shut the gate behind it: nobody else can say that nothing runs."""
    engine = ThreadEngine()
    scheduler = scheduler_with(engine, url)
    engine.work = finding(scheduler)

    async def send(gate: StoreGate, worker: str, updates: Sequence[Update]) -> Sequence[bool]:
        accepted = await real(gate, worker, updates)
        if isinstance(updates[0], Start):
            assert await gate.store.change_job(ChangeJob(job_of(updates[0].key), "remove"))
        return accepted

    real = StoreGate.send
    monkeypatch.setattr(StoreGate, "send", send)

    @scheduler.job(every(hours=1), executor="threads")
    def pay() -> None:
        raise AssertionError("its job is gone")

    fire = await run_once(scheduler, pay)
    assert (fire.state, fire.reason) == (State.CANCELLED, "job removed")
    assert [attempt.outcome for attempt in fire.attempts] == ["given back"]


async def test_an_order_that_is_delivered_five_times_runs_once(url):
    engine = ThreadEngine(times=5)
    scheduler = scheduler_with(engine, url)
    engine.work = finding(scheduler)
    starts = []

    @scheduler.task(executor="threads")
    def pay(fire: Fire) -> None:
        starts.append(fire.token)

    async with scheduler:
        handle = await scheduler.trigger(pay)
        await handle.wait(timeout=60)
        async with asyncio.timeout(60):
            while len(engine.verdicts) < 5 or not engine.forgotten:
                await asyncio.sleep(0.02)
        fire = await handle.record()
    assert starts == [1]
    assert sorted(engine.verdicts) == ["refused"] * 4 + ["succeeded"]
    assert fire.state is State.SUCCEEDED


async def test_why_says_whether_a_worker_has_started_it(url):
    engine = ThreadEngine()
    scheduler = scheduler_with(engine, url)
    deliver, go_on = threading.Event(), threading.Event()

    def late(text: str) -> Verdict:
        deliver.wait(60)
        return finding(scheduler)(text)

    engine.work = late

    @scheduler.task(id="report", executor="threads")
    def report() -> None:
        go_on.wait(60)

    async with scheduler, asyncio.timeout(60):
        handle = await scheduler.trigger(report)
        while not engine.orders:
            await asyncio.sleep(0.01)
        assert "no worker has started it yet" in (await scheduler.why("report")).text
        deliver.set()
        while "It is running on worker" not in (said := (await scheduler.why("report")).text):
            await asyncio.sleep(0.01)
        assert "of the engine threads" in said
        go_on.set()
        await handle.wait(timeout=60)


@pytest.mark.slow
async def test_a_failure_is_retried_with_another_ref(url):
    engine = ThreadEngine()
    scheduler = scheduler_with(engine, url)
    engine.work = finding(scheduler)

    @scheduler.job(every(hours=1), executor="threads", retry=Retry(attempts=2, first=0.05, cap=0.1))
    async def flaky(fire: Fire) -> None:
        if fire.attempt == 1:
            raise RuntimeError("drawn")

    fire = await run_once(scheduler, flaky)
    assert (fire.state, fire.attempt) == (State.SUCCEEDED, 2)
    assert len({order.ref for order in engine.orders}) == 2


class AwayFor(ThreadEngine):
    """Its first submissions fail, as while a broker is away."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    async def submit(self, order: Order) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise ConnectionError("the broker is away")
        await super().submit(order)


@pytest.mark.slow
async def test_an_order_is_sent_soon_after_an_engine_is_back(url):
    """However long that was away: only what it has taken is sent again at ever longer intervals."""
    engine = AwayFor(failures=6)
    scheduler = scheduler_with(engine, url)
    engine.work = finding(scheduler)

    @scheduler.task(executor="threads")
    def report() -> None: ...

    async with scheduler:
        handle = await scheduler.trigger(report)
        fire = await handle.wait(timeout=45)  # 6 times 2 s; doubling each time it would be 126 s
    assert fire.state is State.SUCCEEDED


class NeverDone(ThreadEngine):
    """Its worker takes an order, and neither passes the gate nor comes to an end."""

    def __init__(self) -> None:
        super().__init__(work=self._hang)
        self.over = threading.Event()
        self.submits = self.polls = 0

    def _hang(self, text: str) -> Verdict:
        self.over.wait(120)
        return Verdict("unreported")

    async def submit(self, order: Order) -> None:
        self.submits += 1
        await super().submit(order)

    async def poll(self, refs: Sequence[Ref]) -> Mapping[Ref, Sighting]:
        self.polls += len(refs)
        return await super().poll(refs)


@contextmanager
def unreadable(path: Path, table: str, column: str) -> Iterator[None]:
    """The one row of a table that is not over."""
    which = "finished_at is null" if table == "fencepost_fires" else "true"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        [(before,)] = db.execute(f"select {column} from {table} where {which}").fetchall()
        db.execute(f"update {table} set {column} = '{{' where {which}")
        yield
        db.execute(f"update {table} set {column} = ? where {which}", (before,))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_run_of_a_dead_worker_ends_also_if_it_was_out_of_sight(url, tmp_path):
    """Its row cannot be read for a while: the replica takes it for ended, and comes upon it again."""
    engine = NeverDone()
    scheduler = scheduler_with(engine, url)

    @scheduler.task(executor="threads")
    def report() -> None: ...

    async with scheduler:
        handle = await scheduler.trigger(report)
        await until(lambda: engine.orders)
        (order,) = engine.orders
        passed = Start(order.key, order.token, "a worker that dies now", order.heartbeat, order.ttl)
        assert (await scheduler.store.update_claims("worker", [passed])).accepted == (True,)
        with unreadable(tmp_path / "engines.db", "fencepost_fires", "extra"):
            await until(lambda: engine.forgotten)
        fire = await handle.wait(timeout=60)
        engine.over.set()
    assert fire.state is State.LOST


async def test_a_run_stays_in_sight_if_the_store_cannot_say_what_became_of_it(url, tmp_path, monkeypatch):
    """Its job cannot be read for a while, and the store fails just then. The order is not sent a second time."""
    engine = NeverDone()
    scheduler = scheduler_with(engine, url)
    failures: list[FireQuery] = []

    @scheduler.task(executor="threads")
    def report() -> None: ...

    async with scheduler:
        handle = await scheduler.trigger(report)
        await until(lambda: engine.submits)
        find_fires = scheduler.store.find_fires

        async def fails_once(query: FireQuery) -> Sequence[FireRecord]:
            if query.keys and not failures:
                failures.append(query)
                raise StoreUnavailable("the disk is away")
            return await find_fires(query)

        monkeypatch.setattr(scheduler.store, "find_fires", fails_once)
        with unreadable(tmp_path / "engines.db", "fencepost_jobs", "definition"):
            await until(lambda: failures)
        polled = engine.polls
        await until(lambda: engine.polls > polled + 2)
        assert (engine.submits, engine.forgotten) == (1, [])
        engine.over.set()
        await scheduler.cancel(handle.key)


@pytest.mark.slow
async def test_a_cancel_reaches_the_worker(url):
    engine = ThreadEngine()
    scheduler = scheduler_with(engine, url)
    engine.work = finding(scheduler)
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @scheduler.task(executor="threads")
    async def endless() -> None:
        loop.call_soon_threadsafe(started.set)
        await asyncio.sleep(600)

    async with scheduler:
        handle = await scheduler.trigger(endless)
        await asyncio.wait_for(started.wait(), 60)
        await scheduler.cancel(handle.key)
        fire = await handle.wait(timeout=60)
    assert fire.state is State.CANCELLED


@pytest.mark.slow
async def test_a_worker_without_a_route_to_the_store(url, monkeypatch):
    """Everything goes through the service: start gate, heartbeats, report, checkpoint, outcome."""
    engine = ThreadEngine(times=2)
    scheduler = scheduler_with(engine, url)
    engine.work = finding(scheduler)

    @scheduler.task(executor="threads")
    async def far(fire: Fire) -> str:
        await fire.save([1])
        await asyncio.sleep(1.0)  # several heartbeats
        fire.check()
        return "done"

    def wait() -> None:
        with service(scheduler) as client:
            monkeypatch.setenv("FENCEPOST_SERVICE", str(client.base_url))
            monkeypatch.delenv("FENCEPOST_STORE")
            key = client.post("/api/v1/jobs/test_a_worker_without_a_route_to_the_store.far/trigger").json()[
                "key"
            ]
            found.append(eventually(lambda: ended(client.get(f"/api/v1/fires/{key}").json())))

    def ended(fire: dict[str, Any]) -> dict[str, Any] | None:
        return fire if fire["finished_at"] else None

    found: list[dict[str, Any]] = []
    await asyncio.to_thread(wait)
    assert (found[0]["state"], found[0]["result"]) == ("succeeded", "done")
    assert "refused" in engine.verdicts


def test_a_worker_that_knows_no_store_says_what_to_set(monkeypatch):
    for name in ("FENCEPOST_STORE", "FENCEPOST_SERVICE", "FENCEPOST_APP"):
        monkeypatch.delenv(name, raising=False)
    order = Order(
        ref_of("default", "a@b", 1), "threads", "default", "a@b", 1, "a", "a", "2026-11-15T12:00:00Z"
    )
    with pytest.raises(ConfigurationError, match="set FENCEPOST_STORE"):
        carry_out(order.text, print)


def test_an_order_from_outside_is_checked():
    good = Order(
        ref_of("default", "a@b", 1), "threads", "default", "a@b", 1, "a", "a", "2026-11-15T12:00:00Z"
    )
    assert Order.from_json(good.text) == good
    changes: list[dict[str, Any]] = [{"token": "1"}, {"ref": "fp-other"}, {"args": []}]
    for change in changes:
        with pytest.raises(ConfigurationError):
            Order.from_json({**good.to_json(), **change})
    with pytest.raises(ConfigurationError):
        Order.from_json("[]")


def test_the_command_refuses_to_run_without_an_order():
    ended = subprocess.run([sys.executable, "-m", "fencepost.engine_worker"], capture_output=True, text=True)
    assert ended.returncode == 64
    assert "FENCEPOST_ORDER" in ended.stderr


def test_options_without_an_engine_are_refused():
    scheduler = Scheduler(store="memory://")
    with pytest.raises(ConfigurationError, match="name it, as executor='celery'"):
        scheduler.task(print, engine={"queue": "a"})
    with pytest.raises(ConfigurationError, match="the name of an engine"):
        scheduler.task(print, executor="selery")


def test_a_remote_run_on_record_is_small():
    remote = Remote("celery", "a", 30.0, 40.0)
    assert remote.to_json() == {"engine": "celery", "by": "a", "submit_within": 30.0, "submit_until": 40.0}
