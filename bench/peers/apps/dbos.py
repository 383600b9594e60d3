"""DBOS Transact's schedules. It delays each start at random by up to a tenth of the interval."""

from __future__ import annotations

import time
from datetime import datetime

from bench.peers.work import Work
from dbos import DBOS

here: Work
"""The work of this process: workflows are module-level functions, found by name."""


@DBOS.workflow()
def body(due: datetime, number: int) -> None:
    here.note(number, due.timestamp())


def prepare(work: Work) -> None:
    launch(work)
    for number in work.numbers():
        cron = f"{work.seconds(number)} * * * * *"
        DBOS.create_schedule(schedule_name=f"job{number}", workflow_fn=body, schedule=cron, context=number)
    DBOS.destroy()


def replica(work: Work) -> None:
    launch(work)
    work.ready()
    while True:
        time.sleep(60)


def launch(work: Work) -> None:
    global here
    here = work
    DBOS(
        config={
            "name": "bench",
            "system_database_url": work.url.replace("postgresql:", "postgresql+psycopg:"),
            "run_admin_server": False,
            "log_level": "ERROR",
            "application_version": "1",
            "scheduler_polling_interval_sec": 1.0,
        }
    )
    DBOS.launch()
