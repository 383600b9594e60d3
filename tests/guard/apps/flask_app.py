"""Flask with APScheduler in the background, started with the module, and never shut down."""

import os
import time

from apscheduler.schedulers.background import BackgroundScheduler
from flask import Flask

from fencepost.apscheduler import guard
from tests.guard.apps.notes import note

app = Flask(__name__)
scheduler = BackgroundScheduler(timezone="UTC", job_defaults={"misfire_grace_time": 30, "max_instances": 3})


@scheduler.scheduled_job("interval", seconds=1)
def poll():
    note("poll")
    time.sleep(0.05)


@scheduler.scheduled_job("cron", second="*", id="tidy up / daily")
def tidy():
    note("tidy")


if os.environ.get("GUARDED"):
    guard(scheduler)
scheduler.start()


@scheduler.scheduled_job("interval", seconds=1, args=["late"])
def greet(whom):
    note("greet")


@app.get("/")
def home():
    return {"jobs": [job.name for job in scheduler.get_jobs()]}
