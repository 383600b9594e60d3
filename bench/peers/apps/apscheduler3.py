"""APScheduler 3 with its SQLAlchemy job store, thread pool of 10.

The body is not told its due time; the listener is.
"""

from __future__ import annotations

import time
from datetime import UTC

from apscheduler.events import EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.interval import IntervalTrigger
from bench.peers.work import Work


def prepare(work: Work) -> None:
    if work.url.startswith("postgresql"):
        scheduler = made(work)
        scheduler.start(paused=True)
        add_jobs(scheduler, work)
        scheduler.shutdown()


def replica(work: Work) -> None:
    def executed(event: JobExecutionEvent) -> None:
        work.note(event.job_id, event.scheduled_run_time.timestamp(), event.retval)

    scheduler = made(work)
    scheduler.add_listener(executed, EVENT_JOB_EXECUTED)
    if not work.url.startswith("postgresql"):
        add_jobs(scheduler, work)
    scheduler.start()
    work.ready()
    while True:
        time.sleep(60)


def made(work: Work) -> BaseScheduler:
    if work.url.startswith("postgresql"):
        store = SQLAlchemyJobStore(url=work.url.replace("postgresql:", "postgresql+psycopg:"))
    else:
        store = MemoryJobStore()
    defaults = {"coalesce": False, "misfire_grace_time": 60, "max_instances": 10}
    return BackgroundScheduler(jobstores={"default": store}, timezone=UTC, job_defaults=defaults)


def add_jobs(scheduler: BaseScheduler, work: Work) -> None:
    for number in work.numbers():
        trigger = IntervalTrigger(seconds=work.period, start_date=work.first(number), timezone=UTC)
        scheduler.add_job(body, trigger, id=str(number))


def body() -> float:
    return time.time()
