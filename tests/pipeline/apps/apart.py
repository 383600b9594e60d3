"""Phases at the top of a module, as another interpreter finds them."""

import os
import signal
import time
from pathlib import Path

from fencepost import EffectCommitted


def tell(run, *, factor):
    run.report(done=1, total=2, message="half of it")
    run.warn("a row was left out")
    run.keep(rows=3)
    return {
        "pid": os.getpid(),
        "now": run.fire.now().timestamp(),
        "seen": [run.mode, run.run_type, run.results["load"], dict(run.kept), factor],
    }


async def coroutine():
    return os.getpid()


def save_and_die(run, *, folder):
    """In the first attempt."""
    if run.saved is None:
        run.save({"step": 7}).wait()
        os.kill(os.getpid(), signal.SIGKILL)
    return run.saved


def fail(run):
    raise ValueError("row 17 has no name")


def wait(run, *, folder):
    """Say who runs it, and go on until it is told to end."""
    Path(folder, f"pid-{run.fire.attempt}").write_text(str(os.getpid()))
    while True:
        time.sleep(0.02)
        run.report(done=1)


def hold_the_interpreter(run, *, seconds):
    """Nothing else of this process runs meanwhile: `re` does not let go of the interpreter in the midst of a search."""
    import re

    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        re.search("(a*)*b", "a" * 21)
    return os.getpid()


def done_before(run):
    raise EffectCommitted("an earlier attempt has committed it")


def download(run):
    run.download("atlas", "somewhere")
