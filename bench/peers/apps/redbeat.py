"""Celery beat with redbeat's scheduler, lock of 25 s (default 25 minutes); one worker of Celery, pool "solo".

The body is not told its due time, and has none: an interval is counted from the last run.
"""

from __future__ import annotations

import redbeat.schedulers
from bench.peers.work import Work
from celery import Celery, signals
from celery.schedules import schedule

LOOP = 5
LOCK = 25


def prepare(work: Work) -> None:
    app = made(work)
    interval = schedule(work.period, app=app)
    for number in work.numbers():
        entry = redbeat.schedulers.RedBeatSchedulerEntry(
            str(number), "body", interval, args=[number], app=app
        )
        entry.last_run_at = work.first(number) - work.every
        entry.save()


def replica(work: Work) -> None:
    app = made(work)
    # redbeat takes its lock in an earlier receiver of the same signal: the one that gets here leads.
    signals.beat_init.connect(lambda **_: work.leads(), weak=False)
    work.ready()
    app.Beat(
        scheduler_cls=redbeat.schedulers.RedBeatScheduler, max_interval=LOOP, loglevel="ERROR", quiet=True
    ).run()


def worker(work: Work) -> None:
    app = made(work)
    signals.worker_ready.connect(lambda **_: work.ready(), weak=False)
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    app.worker_main(["worker", "--pool", "solo", "--loglevel", "ERROR", *quiet])


def made(work: Work) -> Celery:
    app = Celery("bench", broker=work.url)
    app.conf.update(
        beat_max_loop_interval=LOOP,
        broker_connection_retry_on_startup=True,
        redbeat_lock_timeout=LOCK,
        redbeat_redis_url=work.url,
        task_ignore_result=True,
        timezone="UTC",
        worker_hijack_root_logger=False,
        worker_prefetch_multiplier=100,
    )

    @app.task(name="body")
    def body(number: int) -> None:
        work.note(number)

    return app
