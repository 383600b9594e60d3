"""Forks, as servers do. LOAD_FORK says how:

* `unrelated`: a running scheduler's process forks a child that takes no part and outlives it
* `own`: a running scheduler's process forks a child that starts its own
* `preload`: the scheduler is made before three workers are forked, and started in each (gunicorn --preload)
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from load import Load, end_with, no_ordinary_runs  # type: ignore[import-not-found]

from fencepost import Scheduler

OUTLIVES = 5.0


def main() -> int:
    logging.basicConfig(format="%(asctime)s %(process)d %(levelname)s %(message)s", level=logging.INFO)
    faulthandler.register(signal.SIGUSR1)
    logging.getLogger("fencepost").addFilter(no_ordinary_runs)
    load = Load()
    end_with(load.parent)
    scheduler = load.scheduler()
    how = os.environ["LOAD_FORK"]
    return preload(scheduler) if how == "preload" else asyncio.run(beside(scheduler, how))


async def beside(scheduler: Scheduler, how: str) -> int:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with scheduler:
        child = os.fork()
        if child == 0:
            unrelated() if how == "unrelated" else own(scheduler)
        await ended.wait()
    return 0 if how == "unrelated" else end_of([child])


def unrelated() -> None:
    time.sleep(OUTLIVES)
    os._exit(0)


def own(scheduler: Scheduler) -> None:
    code = 1
    try:
        scheduler.run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def preload(scheduler: Scheduler) -> int:
    workers = []
    for _ in range(3):
        worker = os.fork()
        if worker == 0:
            own(scheduler)
        workers.append(worker)

    def pass_on(*_: object) -> None:
        for worker in workers:
            os.kill(worker, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    return max(os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers)


def end_of(children: list[int]) -> int:
    for child in children:
        os.kill(child, signal.SIGTERM)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main())
