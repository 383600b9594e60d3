"""Single-instance mode: the gate, and one process that schedules while others stand by."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import pytest

from fencepost import Scheduler, every
from fencepost.errors import ConfigurationError
from fencepost.scheduler.single_instance import SingleInstance
from fencepost.store.memory import MemoryStore
from tests.unit.apps.waiting import ask, eventually


@pytest.mark.parametrize(
    ("gate", "env", "says"),
    [
        (SingleInstance(), {}, None),
        (SingleInstance(), {"WEB_CONCURRENCY": "1"}, None),
        (SingleInstance(), {"WEB_CONCURRENCY": " 1 "}, None),
        (SingleInstance(), {"WEB_CONCURRENCY": ""}, None),
        (SingleInstance(), {"WEB_CONCURRENCY": "4"}, "WEB_CONCURRENCY is '4'"),
        (SingleInstance(), {"WEB_CONCURRENCY": "many"}, "WEB_CONCURRENCY is 'many'"),
        (SingleInstance(), {"WEB_CONCURRENCY": "0"}, "WEB_CONCURRENCY is '0'"),
        (SingleInstance("APP_WORKERS"), {"WEB_CONCURRENCY": "4"}, None),
        (SingleInstance("APP_WORKERS"), {"APP_WORKERS": "2"}, "set APP_WORKERS=1 and start one worker"),
        (SingleInstance("APP_WORKERS", strict=True), {}, "APP_WORKERS is not set"),
        (SingleInstance("APP_WORKERS", strict=True), {"APP_WORKERS": "1"}, None),
    ],
)
def test_the_declared_number_of_workers_decides(gate, env, says):
    if says is None:
        gate.check(env)
        return
    with pytest.raises(ConfigurationError) as refused:
        gate.check(env)
    assert says in str(refused.value)


async def test_a_start_with_several_workers_is_refused_and_nothing_is_begun(monkeypatch):
    monkeypatch.setenv("WEB_CONCURRENCY", "4")
    store = MemoryStore()
    scheduler = Scheduler(store=store, single_instance=True)
    with pytest.raises(ConfigurationError, match="WEB_CONCURRENCY is '4'"):
        await scheduler.start()
    assert ask(store.roster()).replicas == ()


async def test_one_runs_the_jobs_and_another_takes_over_when_it_stops(monkeypatch):
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    store, ran = MemoryStore(), []

    def app(name):
        scheduler = Scheduler(store=store, single_instance=True)
        scheduler.job(every(days=300), id="job")(lambda: ran.append(name))
        return scheduler

    first, second = app("first"), app("second")
    await first.start()
    await second.start()
    await (await second.trigger("job")).wait(timeout=60)
    assert ran == ["first"], "the one that stands by passes it on"
    await first.stop()
    await eventually(lambda: ask(store.roster()).leader.holder is not None)
    await (await second.trigger("job")).wait(timeout=60)
    await second.stop()
    assert ran == ["first", "second"]


def test_a_job_cannot_leave_the_single_instance():
    scheduler = Scheduler(store="memory://", single_instance=True)
    with pytest.raises(ConfigurationError, match="all jobs run on the leader"):
        scheduler.job(every(hours=1), execute_on="any")(print)
