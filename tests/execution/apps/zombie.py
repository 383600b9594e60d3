"""A replica whose job pays once, told by the environment what with; `tests.execution.test_zombie` stops it half-way.

| variable | |
|---|---|
| `LOAD_STORE` | store URL |
| `EFFECT` | where the effect goes: a file, or a PostgreSQL URL |
| `WAIT` | `before` the effect, or `inside` its transaction: where the first attempt waits for the file `go` |
| `LOAD_LOG` | a line for every step |
| `LOAD_PARENT` | end when this process is no longer the parent |
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from fencepost import EffectCommitted, Event, FencedOut, Fire, Scheduler, every
from tests.cluster.apps.load import end_with

EFFECT, WAIT, LOG = os.environ["EFFECT"], os.environ["WAIT"], Path(os.environ["LOAD_LOG"])

scheduler = Scheduler(store=os.environ["LOAD_STORE"])


@scheduler.job(every(days=300), id="pay", after_crash="rerun")
def pay(fire: Fire) -> None:
    first = not fire.record.attempts
    note("started", fire)
    if first and WAIT == "before":
        wait_for_go()
    try:
        with closing(connect()) as connection, fire.fenced(connection):
            connection.execute(f"insert into payments values ({fire.token})")
            if first and WAIT == "inside":
                note("inside", fire)
                wait_for_go()
    except (EffectCommitted, FencedOut) as error:
        note(type(error).__name__, fire)
        raise
    note("paid", fire)


@scheduler.on("fenced")
def fenced(event: Event) -> None:
    assert event.fire is not None
    note("fenced", event.fire)


def connect() -> Any:
    return psycopg.connect(EFFECT) if EFFECT.startswith("postgresql") else sqlite3.connect(EFFECT)


def wait_for_go() -> None:
    while not LOG.with_name("go").exists():
        time.sleep(0.01)


def note(what: str, fire: Any) -> None:
    with LOG.open("a") as file:
        file.write(f"{what} {fire.token} {os.getpid()}\n")


if __name__ == "__main__":
    end_with(int(os.environ["LOAD_PARENT"]))
    scheduler.run()
