"""What takes a process to show: a fork, and the end of an interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.guard.kit import Ledger

pytestmark = pytest.mark.cluster

HEAD = """
import asyncio, logging, os, sys, time
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from fencepost.apscheduler import guard

logging.basicConfig(format="%(message)s")
url = sys.argv[1]
quick = dict(heartbeat=0.2, leader_ttl=1, run_ttl=1)
often = dict(trigger="interval", seconds=1, misfire_grace_time=30)
"""


def carried_out(folder: Path, url: str, code: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(HEAD + textwrap.dedent(code))
    env = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    command = [sys.executable, str(script), url]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_a_process_that_just_ends_leaves_in_order(tmp_path: Path, url: str, ledger: Ledger) -> None:
    """Nobody has called `shutdown`, as in most web applications."""
    done = carried_out(
        tmp_path,
        url,
        """
        def work():
            print("begun", flush=True)
            time.sleep(1)

        scheduler = BackgroundScheduler()
        scheduler.add_job(work, id="work", **often)
        guard(scheduler, url, **quick)
        scheduler.start()
        time.sleep(2.2)
        """,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "begun" in done.stdout
    assert set(ledger.outcomes("work")) <= {("succeeded", None), ("skipped", "overlap")}
    assert ("succeeded", None) in ledger.outcomes("work")
    assert not ledger.roster().replicas
    assert ledger.roster().leader.holder is None


def test_a_loop_that_just_stops_ends_the_process_at_once(tmp_path: Path, url: str, ledger: Ledger) -> None:
    done = carried_out(
        tmp_path,
        url,
        """
        async def work():
            asyncio.get_running_loop().call_later(0.2, loop.stop)
            await asyncio.sleep(60)

        async def begin():
            scheduler.add_job(work, id="work", **often)
            guard(scheduler, url, **quick)
            scheduler.start()

        scheduler = AsyncIOScheduler()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin())
        loop.run_forever()
        ended = time.monotonic()
        import atexit
        atexit.register(lambda: print(f"took {time.monotonic() - ended:.1f}"))
        """,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 3, done.stdout
    assert ledger.outcomes("work") == [("cancelled", "drain limit")]
    assert not ledger.roster().replicas


def test_in_a_forked_child_it_is_said_that_nothing_runs(tmp_path: Path, url: str, ledger: Ledger) -> None:
    """As with gunicorn's preload, where the scheduler was started in the parent."""
    done = carried_out(
        tmp_path,
        url,
        """
        import signal
        scheduler = BackgroundScheduler()
        scheduler.add_job(print, id="work", args=["ran", os.getpid()], **often)
        guard(scheduler, url, **quick)
        scheduler.start()
        child = os.fork()
        if child == 0:
            scheduler.add_job(print, id="other", args=["child"], **often)
            time.sleep(0.5)
            sys.exit(0)
        os.waitpid(child, 0)
        time.sleep(1.5)
        print("end", os.getpid())
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "was started before a fork: nothing runs here; start it in the child" in done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    parent = next(words[1] for words in lines if words[0] == "end")
    assert {tuple(words) for words in lines if words[0] != "end"} == {("ran", parent)}
    assert not ledger.roster().replicas


def test_guarded_before_a_fork_and_started_after_it(tmp_path: Path, url: str, ledger: Ledger) -> None:
    done = carried_out(
        tmp_path,
        url,
        """
        scheduler = BackgroundScheduler()
        scheduler.add_job(print, id="work", args=["ran"], **often)
        guard(scheduler, url, **quick)
        children = []
        for _ in range(2):
            children.append(os.fork())
            if children[-1] == 0:
                scheduler.start()
                time.sleep(2.2)
                sys.exit(0)
        print("codes", [os.waitpid(child, 0)[1] for child in children])
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "codes [0, 0]" in done.stdout, done.stderr
    succeeded = ledger.outcomes("work").count(("succeeded", None))
    assert done.stdout.count("ran") == succeeded >= 1
    assert not ledger.roster().replicas
