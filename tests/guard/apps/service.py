"""A service that does nothing but run its jobs."""

import os
import signal
import sys
import time

from apscheduler.schedulers.blocking import BlockingScheduler

from fencepost.apscheduler import guard
from tests.guard.apps.notes import note

scheduler = BlockingScheduler(timezone="UTC", job_defaults={"misfire_grace_time": 30, "max_instances": 3})


@scheduler.scheduled_job("interval", seconds=1)
def poll():
    note("poll")
    time.sleep(0.05)


@scheduler.scheduled_job("cron", second="*")
def tidy():
    note("tidy")


@scheduler.scheduled_job("interval", seconds=1, args=["early"])
def greet(whom):
    note("greet")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if os.environ.get("GUARDED"):
        guard(scheduler)
    scheduler.start()
