"""Jobs on an engine under load, told by the environment what to do. Replicas run it, and workers import it.

Bodies write a line per start and per end as those of `tests/cluster/apps/load.py` do; where a replica's name stands
there, these name what can be killed: the process group of the worker, or the pod. `sleep_record` and `sleep_rerun` are
triggered by hand, with `seconds` as an argument.

| variable | |
|---|---|
| `LOAD_STORE`, `LOAD_JOBS`, `LOAD_PERIOD`, `LOAD_ANCHOR`, `LOAD_LOG`, `LOAD_PARENT` | as there |
| `LOAD_END` | when the last fire is due, as `LOAD_ANCHOR`; without it there is none |
| `LOAD_ENGINE`, `LOAD_OPTIONS` | the engine, and the jobs' options for it |
| `LOAD_BODIES` | seconds that bodies take, separated by commas; a fire's key says which |
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from fencepost import Fire, Scheduler, at, every
from tests.cluster.apps.load import end_with, no_ordinary_runs

ENGINE = os.environ["LOAD_ENGINE"]
OPTIONS = json.loads(os.environ.get("LOAD_OPTIONS", "{}"))
BODIES = [float(each) for each in os.environ.get("LOAD_BODIES", "0").split(",")]
NUMBER = int(os.environ.get("LOAD_JOBS", "0"))
PERIOD = float(os.environ.get("LOAD_PERIOD", "30"))
ANCHOR = datetime.fromtimestamp(float(os.environ.get("LOAD_ANCHOR", "0")), UTC)
END = datetime.fromtimestamp(float(os.environ["LOAD_END"]), UTC) if "LOAD_END" in os.environ else None

NEVER = datetime(2200, 1, 1, tzinfo=UTC)


def body(number: int) -> Callable[[Fire], None]:
    def work(fire: Fire) -> None:
        mark("start", fire)
        time.sleep(BODIES[zlib.crc32(fire.key.encode()) % len(BODIES)])
        mark("end", fire)

    return work


def sleep(fire: Fire, seconds: float) -> None:
    """Heeds no cancel."""
    mark("start", fire)
    time.sleep(seconds)
    mark("end", fire)


def mark(what: str, fire: Fire) -> None:
    where = os.environ.get("LOAD_POD") or str(os.getpgid(0))
    line = f"{what} {fire.key} {fire.token} {os.getpid()} {where} {time.time():.6f} {time.monotonic():.6f}\n"
    file = os.open(os.environ["LOAD_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def jobs() -> Scheduler:
    scheduler = Scheduler(store=os.environ["LOAD_STORE"])
    for number in range(NUMBER):
        anchor = ANCHOR + timedelta(seconds=PERIOD * (number / NUMBER - 1))
        trigger = every(seconds=PERIOD, anchor=anchor, end=END)
        scheduler.job(
            trigger,
            id=f"job{number:05}",
            executor=ENGINE,
            engine=OPTIONS,
            after_crash=("record", "rerun")[number % 2],
        )(body(number))
    for after_crash in ("record", "rerun"):
        by_hand = {"executor": ENGINE, "engine": OPTIONS, "overlap": "allow(10)", "after_crash": after_crash}
        scheduler.job(at(NEVER), id=f"sleep_{after_crash}", args={"seconds": 0.1}, **by_hand)(sleep)
    return scheduler


scheduler = jobs()
# Where a worker is that has come to a halt. Celery has put something without a descriptor in place of sys.stderr.
faulthandler.register(signal.SIGUSR1, file=2)

if __name__ == "__main__":
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING, stream=sys.stderr
    )
    logging.getLogger("fencepost").setLevel(logging.INFO)
    logging.getLogger("fencepost").addFilter(no_ordinary_runs)
    end_with(int(os.environ.get("LOAD_PARENT", "0")))
    scheduler.run()
