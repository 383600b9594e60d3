"""Flask-APScheduler, guarded before it is initialised, as its users write it."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import contextlib
import copy
import time

from flask import Flask
from flask_apscheduler import APScheduler

from fencepost import current_fire
from fencepost.apscheduler import guard
from tests.guard.kit import QUICK, eventually

KEYS: list[str] = []


def tick():
    KEYS.append(current_fire().key)


CONFIGURATION = {
    "SCHEDULER_API_ENABLED": True,
    "SCHEDULER_TIMEZONE": "UTC",
    "SCHEDULER_EXECUTORS": {"default": {"type": "threadpool", "max_workers": 3}},
    "SCHEDULER_JOB_DEFAULTS": {"max_instances": 4, "misfire_grace_time": 30},
    "JOBS": [{"id": "tick", "func": f"{__name__}:tick", "trigger": "interval", "seconds": 1}],
}


@contextlib.contextmanager
def application(url):
    app, extension = Flask(__name__), APScheduler()
    app.config.from_mapping(copy.deepcopy(CONFIGURATION))  # it is emptied
    watch = guard(extension, url, **QUICK)
    extension.init_app(app)
    extension.start()
    try:
        yield app, watch
    finally:
        extension.shutdown()


def test_its_jobs_run_once_with_what_it_configures(url, ledger):
    KEYS.clear()
    with application(url) as (_, watch), application(url):
        eventually(lambda: len(set(KEYS)) >= 3, 20)
        assert watch.host.room(time.monotonic()) <= 3
        assert str(ledger.jobs()["tick"].job.overlap) == "allow(4)"
    assert len(KEYS) == len(set(KEYS))


def test_what_its_api_changes_holds_for_all(url, ledger):
    with application(url) as (app, _), application(url):
        eventually(lambda: "tick" in ledger.jobs(), 20)
        client = app.test_client()
        assert client.get("/scheduler/jobs/tick").json["trigger"] == "interval"
        assert (
            client.patch("/scheduler/jobs/tick", json={"trigger": "interval", "minutes": 5}).status_code
            == 200
        )
        eventually(lambda: ledger.jobs()["tick"].job.trigger.interval.seconds == 300, 20)
        assert client.post("/scheduler/jobs/tick/pause").status_code == 200
        eventually(lambda: ledger.jobs()["tick"].pauses, 20)
        assert client.delete("/scheduler/jobs/tick").status_code == 204
        eventually(lambda: "tick" not in ledger.jobs(), 20)
