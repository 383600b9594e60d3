"""Importing Fencepost in several threads, and while the process forks, gives whole modules."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

import fencepost

THREADS = """
import sys, threading
failures, together = [], threading.Barrier(len(sys.argv) - 1)
def get(name):
    together.wait()
    try:
        if name == "fencepost":
            from fencepost import Pipeline, Scheduler
        else:
            __import__(name)
    except BaseException as error:
        failures.append(f"{name}: {error!r}")
threads = [threading.Thread(target=get, args=[name], daemon=True) for name in sys.argv[1:]]
[thread.start() for thread in threads]
[thread.join(60) for thread in threads]
print(failures or any(thread.is_alive() for thread in threads))
"""
FORK = """
import os, signal, sys, threading
inside = threading.Event()
class Tells:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            inside.set()
sys.meta_path.insert(0, Tells())
def get():
    from fencepost import Scheduler
thread = threading.Thread(target=get, daemon=True)
thread.start()
assert inside.wait(60)  # it is in the midst of it
child = os.fork()
if child == 0:
    signal.alarm(15)
    from fencepost import Pipeline, Scheduler
    Scheduler("memory://")
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def said_by(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "names",
    [("fencepost", "fencepost.scheduler.scheduler"), ("fencepost", "fencepost.apscheduler", "fencepost.cli")],
)
def test_threads_that_import_at_once_get_whole_modules(names: tuple[str, ...]) -> None:
    assert said_by(THREADS, *names) == "False"


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    list(
        itertools.permutations(
            ["fencepost", "fencepost.scheduler.scheduler", "fencepost.pipeline", "fencepost.cli"], 3
        )
    ),
)
def test_in_any_order(names: tuple[str, ...]) -> None:
    assert said_by(THREADS, *names) == "False"


@pytest.mark.parametrize("module", ["fencepost.model", "fencepost.scheduler.scheduler"])
def test_a_worker_forked_while_another_thread_imports_can_import_too(module: str) -> None:
    assert said_by(FORK, module) == "0"


def test_what_it_offers_is_found() -> None:
    for name in fencepost.__all__:
        assert getattr(fencepost, name) is not None
        assert name in dir(fencepost)
    assert fencepost.errors.UsageError is fencepost.UsageError  # modules are found as before
    assert not hasattr(fencepost, "Schedular")
    assert not hasattr(fencepost, "no_such_module")
