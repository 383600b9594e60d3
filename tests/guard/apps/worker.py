"""One worker of a scene: a scheduler in a process of its own. It calls the methods that it is asked to call."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any

from apscheduler.events import EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from fencepost import current_fire
from fencepost.apscheduler import Guard, guard

FORMAT = "%(asctime)s %(process)d %(message)s"
QUICK: dict[str, Any] = {"heartbeat": 0.3, "leader_ttl": 2, "run_ttl": 2}


def work(
    pipe: Connection, folder: str, store: str | None, job_store: str | None, jobs: Sequence[dict[str, Any]]
) -> None:
    """Guarded if there is a store, with APScheduler's jobs in memory if there is no job store."""
    os.environ.update(NOTES=f"{folder}/notes", GUARDED="1" if store else "")
    logging.basicConfig(filename=f"{folder}/log", format=FORMAT, level=logging.INFO)
    stores = {"default": SQLAlchemyJobStore(job_store)} if job_store else {}
    scheduler = BackgroundScheduler(timezone="UTC", jobstores=stores)
    watch = guard(scheduler, store, **QUICK) if store else None
    scheduler.add_listener(_executed, EVENT_JOB_EXECUTED)
    for job in jobs:
        scheduler.add_job(**job)
    scheduler.start()
    pipe.send(None)
    while True:
        try:
            method, args, options = pipe.recv()
        except EOFError:  # the test is over
            os._exit(0)
        try:
            if method == "carried":
                _until(lambda: watch is None or _carried(watch), method)
            elif method == "idle":
                _until(lambda: _idle(scheduler), method)
            else:
                getattr(scheduler, method)(*args, **options)
            pipe.send(None)
        except Exception as error:
            logging.exception("%s failed", method)
            pipe.send(repr(error))
        if method == "shutdown":
            return


def once() -> None:
    if os.environ["GUARDED"]:
        fire = current_fire()
        _note(fire.key.partition("!")[0].partition("@")[0], fire.due_at)


def long() -> None:
    once()
    time.sleep(3)


def _executed(event: JobExecutionEvent) -> None:
    """Without the guard a body cannot tell for which time it runs. With it, the note must be there before a kill."""
    if not os.environ["GUARDED"]:
        _note(event.job_id, event.scheduled_run_time)


def _note(job: str, due: datetime) -> None:
    file = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{job} {due.timestamp()} {os.getpid()}\n".encode())
    finally:
        os.close(file)


def _until(condition: Callable[[], bool], method: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(method)
        time.sleep(0.02)


def _carried(watch: Guard) -> bool:
    """Whether the store has all that was asked for so far."""
    mirror = watch.native.lifecycle.mirror
    return not watch.keeper.wishes and mirror is not None and mirror._all_granted.is_set()


def _idle(scheduler: Any) -> bool:
    """Whether nothing is due, and nothing runs."""
    times = [job.next_run_time for job in scheduler.get_jobs()]
    due = any(time is not None and time <= datetime.now(UTC) for time in times)
    return not due and not any(
        any(executor._instances.values()) for executor in scheduler._executors.values()
    )
