"""A plugin for APScheduler's own test suite: every scheduler that the suite makes is guarded, on a store of its own;
every job store that it tries alone is as the guard leaves one."""

from __future__ import annotations

import importlib
import os
from typing import Any

import apscheduler.jobstores.base as jobstores
import apscheduler.schedulers.base as schedulers
import pytest
from apscheduler.jobstores.redis import RedisJobStore
from apscheduler.schedulers.background import BackgroundScheduler

guarding: Any = importlib.import_module("fencepost.apscheduler.guard")

_make, _check = schedulers.BaseScheduler.__init__, guarding._check

NOT_GUARDED = ("GeventScheduler", "TornadoScheduler", "TwistedScheduler", "QtScheduler")


def pytest_configure(config: pytest.Config) -> None:
    # Where the suite expects a server on Redis' own port.
    RedisJobStore.__init__ = _on_port(RedisJobStore.__init__, int(os.environ["REDIS_PORT"]))
    if os.environ["GUARDED"]:
        _guard_all()


def _guard_all() -> None:
    def check(scheduler: Any, *args: Any) -> None:
        if type(scheduler).__name__ != "DummyScheduler":  # the suite's own, which does nothing by itself
            _check(scheduler, *args)

    def make(self: Any, *args: Any, **options: Any) -> None:
        _make(self, *args, **options)
        if type(self).__name__ not in NOT_GUARDED:
            guarding.guard(self, "memory://", heartbeat=0.2, leader_ttl=1, run_ttl=1)

    guarding._check = check
    schedulers.BaseScheduler.__init__ = make


def _on_port(make: Any, port: int) -> Any:
    return lambda self, **options: make(self, port=port, **options)


class _Everything(frozenset[str]):
    def __contains__(self, _: object) -> bool:
        return True


@pytest.fixture(autouse=True)
def _guarded_job_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job store without a scheduler, whose jobs are APScheduler's to run: what the guard puts before it lets all
    through."""
    if request.path.name != "test_jobstores.py" or not os.environ["GUARDED"]:
        return
    watch = BackgroundScheduler().start.__self__._guard
    watch._unguarded = _Everything()
    watch.keeper = watch._new_keeper()
    make = jobstores.BaseJobStore.__init__

    def make_guarded(self: Any) -> None:
        make(self)
        guarding.GuardedJobStore(watch, "default", self)

    monkeypatch.setattr(jobstores.BaseJobStore, "__init__", make_guarded)
