"""A plugin for APScheduler's own test suite: every scheduler that the suite makes is guarded, on a store of its own."""

from __future__ import annotations

import importlib
from typing import Any

import apscheduler.schedulers.base as base
import pytest

guarding: Any = importlib.import_module("fencepost.apscheduler.guard")

_make, _check = base.BaseScheduler.__init__, guarding._check

NOT_GUARDED = ("GeventScheduler", "TornadoScheduler", "TwistedScheduler", "QtScheduler")


def pytest_configure(config: pytest.Config) -> None:
    def check(scheduler: Any, *args: Any) -> None:
        if type(scheduler).__name__ != "DummyScheduler":  # the suite's own, which does nothing by itself
            _check(scheduler, *args)

    def make(self: Any, *args: Any, **options: Any) -> None:
        _make(self, *args, **options)
        if type(self).__name__ not in NOT_GUARDED:
            guarding.guard(self, "memory://", heartbeat=0.2, leader_ttl=1, run_ttl=1)

    guarding._check = check
    base.BaseScheduler.__init__ = make
