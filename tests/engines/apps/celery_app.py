"""A Celery application with everything on that makes Celery deliver twice."""

from __future__ import annotations

import os

from celery import Celery

app = Celery("load", broker=os.environ["LOAD_BROKER"], include=["fencepost.engines.celery"])
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 4, "socket_timeout": 10, "socket_connect_timeout": 5},
    task_acks_late=True,
    worker_prefetch_multiplier=4,
    worker_hijack_root_logger=False,
    task_ignore_result=True,
)


@app.task(name="reports.build")
def build(path: str, text: str) -> None:
    with open(path, "a") as file:
        file.write(text + "\n")
