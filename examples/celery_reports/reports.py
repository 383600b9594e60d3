"""Reports on Celery workers: Fencepost decides when and that it is once, Celery's workers do the work."""

import os

from celery import Celery

from fencepost import Fire, Scheduler, cron, every

app = Celery(
    "reports",
    broker=os.environ.get("BROKER", "redis://localhost:6379/0"),
    include=["fencepost.engines.celery"],  # the task that carries out Fencepost's orders
)
app.conf.broker_connection_retry_on_startup = True
app.conf.broker_transport_options = {"socket_timeout": 10, "socket_connect_timeout": 5}

scheduler = Scheduler()  # FENCEPOST_STORE


@app.task(name="reports.build")
def build(region: str) -> None:
    """A task that the application has had all along: the web site sends it, too."""
    print(f"the report of {region} is built", flush=True)


@scheduler.job(
    cron("30 2 * * *", tz="Europe/Zurich"),
    executor="celery",
    engine={"task": "reports.build"},
    args={"region": "ch"},
)
def nightly(region: str) -> None:
    """The Celery task runs in place of this function, whose parameters say what it takes."""


@scheduler.job(every(seconds=10), executor="celery", timeout=60)
def refresh(fire: Fire) -> None:
    """A job's own function runs on a worker as it would in a replica."""
    for part in range(3):
        fire.report(done=part + 1, total=3)
        fire.check()
    print(f"refreshed for {fire.key}", flush=True)
