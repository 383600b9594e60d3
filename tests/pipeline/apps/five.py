"""A replica with a pipeline of five phases, of which the third blocks the application; in the first attempt it does
not end by itself. Told by the environment as `tests/cluster/apps/load.py` is.

Each phase writes a line when its body starts and one when it ends: `start three five!… 2 4711 1763265600.123`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time

from fencepost import Pipeline, Scheduler, every

SECONDS = 0.3
LOG = os.environ["LOAD_LOG"]

pipeline = Pipeline("five")


def mark(what, run):
    line = f"{what} {run.phase.name} {run.fire.key} {run.fire.token} {os.getpid()} {time.time():.6f}\n"
    file = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, line.encode())
    os.close(file)


async def awaits(run):
    mark("start", run)
    await asyncio.sleep(SECONDS)
    mark("end", run)
    return {"by": os.getpid()}


def blocks(run):
    mark("start", run)
    steps = 10
    for step in range(steps):
        run.report(done=step, total=steps)
        time.sleep(SECONDS / steps)
    while run.phase.name == "three" and run.fire.attempt == 1:
        run.report(done=steps, total=steps)
        time.sleep(0.01)
    mark("end", run)
    return {"by": os.getpid()}


pipeline.phase("one", message="First", rewrites=["a"])(awaits)
pipeline.phase("two", message="Second")(blocks)
pipeline.phase("three", message="Third", blocking=True, eta=5, rewrites=["b"])(blocks)
pipeline.phase("four", message="Fourth")(awaits)
pipeline.phase("five", message="Fifth")(blocks)


def end_with(parent):
    """A harness that was itself killed must leave nobody behind."""

    def watch():
        while os.getppid() == parent:
            time.sleep(2)
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    end_with(int(os.environ["LOAD_PARENT"]))
    scheduler = Scheduler(store=os.environ["LOAD_STORE"])
    scheduler.job(every(days=300))(pipeline)
    scheduler.run()
