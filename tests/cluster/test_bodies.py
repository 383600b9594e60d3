"""Bodies in processes of their own: functions and commands, run, failed, cancelled, timed out, and left behind."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencepost import Retry, Scheduler
from fencepost.model.triggers import every
from tests.cluster.apps import bodies
from tests.unit.apps.waiting import eventually

pytestmark = pytest.mark.cluster

LATER = every(days=300)


@pytest.fixture
async def scheduler(tmp_path):
    scheduler = Scheduler(
        store=f"sqlite:///{tmp_path}/bodies.db",
        run_ttl="2s",
        leader_ttl="2s",
        heartbeat="0.5s",
        drain_timeout="1s",
    )
    yield scheduler
    await scheduler.stop()


async def settled(scheduler, job, seconds=6, **options):
    """Trigger it, wait for its end, and give back its row."""
    handle = await scheduler.trigger(job, **options)
    await handle.wait(timeout=seconds)
    return await scheduler.ask(scheduler.fire_operations.find(handle.key))


def gone(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


# --- functions ------------------------------------------------------------------------------------------


async def test_a_function_runs_in_a_process_of_its_own(scheduler, tmp_path):
    scheduler.task(bodies.note_pid, executor="process")
    await scheduler.start()
    path = str(tmp_path / "pid")
    fire = await settled(scheduler, "note_pid", args={"path": path})
    pid, key, token, current = Path(path).read_text().split()
    assert fire.state == "succeeded"
    assert int(pid) != os.getpid()
    assert (key, int(token), current) == (fire.key, fire.token, "True")


async def test_a_coroutine_saves_and_reports_from_its_process(scheduler, tmp_path):
    scheduler.task(bodies.step_by_step, executor="process")
    await scheduler.start()
    fire = await settled(scheduler, "step_by_step", args={"path": str(tmp_path / "seen")})
    assert fire.state == "succeeded"
    assert fire.checkpoint == {"step": 1}
    assert fire.progress == {"done": 1, "total": 2, "message": "half"}
    assert (tmp_path / "seen").read_text() == "{'step': 1} False"


async def test_what_it_raises_is_told_and_decides_whether_it_is_tried_again(scheduler):
    scheduler.job(
        LATER, id="tried", executor="process", retry=Retry(attempts=2, first=0.1, on=(LookupError,))
    )(bodies.fail)
    await scheduler.start()
    fire = await settled(scheduler, "tried")
    assert fire.state == "failed"
    assert len(fire.attempts) == 2, "KeyError is a LookupError"
    assert "KeyError: 'no such thing'" in fire.error
    assert "fail" in fire.error


async def test_a_function_that_never_gives_way_is_killed_at_its_timeout(scheduler, tmp_path):
    path = tmp_path / "pid"
    scheduler.job(LATER, id="spins", executor="process", timeout=1.5, args={"path": str(path)})(
        bodies.spin_for_ever
    )
    await scheduler.start()
    fire = await settled(scheduler, "spins")
    assert (fire.state, fire.reason) == ("failed", "timed out")
    assert gone(int(path.read_text()))


async def test_a_cancelled_function_may_clean_up(scheduler, tmp_path):
    path = tmp_path / "pid"
    scheduler.task(bodies.sleep_for_ever, executor="process")
    await scheduler.start()
    handle = await scheduler.trigger("sleep_for_ever", args={"path": str(path)})
    await eventually(lambda: path.exists() and path.read_text())
    await scheduler.cancel(handle.key)
    await handle.wait(timeout=60)
    fire = await scheduler.ask(scheduler.fire_operations.find(handle.key))
    assert (fire.state, fire.reason) == ("cancelled", "on request")
    assert (tmp_path / "pid.cleaned").exists()


async def test_a_process_that_dies_is_a_failure_with_its_signal(scheduler):
    scheduler.task(bodies.kill_myself, executor="process")
    await scheduler.start()
    fire = await settled(scheduler, "kill_myself")
    assert fire.state == "failed"
    assert "killed by SIGKILL" in fire.error


# --- commands -------------------------------------------------------------------------------------------


async def test_a_command_finds_its_fire_in_its_environment(scheduler, tmp_path):
    told = "echo $FIRE_JOB $FIRE_KEY $FIRE_TOKEN $FIRE_ARGS $COLOUR > told"
    scheduler.command(
        told, LATER, id="tell", shell=True, cwd=str(tmp_path), env={"COLOUR": "blue"}, args={"n": 1}
    )
    await scheduler.start()
    fire = await settled(scheduler, "tell")
    assert fire.state == "succeeded"
    assert (tmp_path / "told").read_text() == f'tell {fire.key} {fire.token} {{"n": 1}} blue\n'


async def test_a_command_that_fails_says_how_and_only_the_end_of_much_output_is_kept(scheduler):
    loud = "for i in $(seq 20000); do echo line $i; done; echo the end >&2; exit 3"
    scheduler.command(loud, LATER, id="loud", shell=True)
    scheduler.command(["no-such-program-here"], LATER, id="absent")
    await scheduler.start()
    fire = await settled(scheduler, "loud")
    assert fire.state == "failed"
    assert fire.error.startswith("exit code 3\n")
    assert fire.error.endswith("line 20000\nthe end")
    assert len(fire.error) < 9_000
    absent = await settled(scheduler, "absent")
    assert absent.error == "exit code 127\ncommand not found: no-such-program-here"


async def test_a_cancelled_command_ends_with_everything_it_started(scheduler, tmp_path):
    scheduler.command("sleep 600 & echo $! > inner; wait", LATER, id="group", shell=True, cwd=str(tmp_path))
    await scheduler.start()
    handle = await scheduler.trigger("group")
    inner = tmp_path / "inner"
    await eventually(lambda: inner.exists() and inner.read_text())
    await scheduler.cancel(handle.key)
    await handle.wait(timeout=60)
    assert (await scheduler.ask(scheduler.fire_operations.find(handle.key))).state == "cancelled"
    await eventually(lambda: gone(int(inner.read_text())))


# --- a replica that dies ------------------------------------------------------------------------------------

APP = """
import sys
from fencepost import Scheduler, every
from tests.cluster.apps import bodies

scheduler = Scheduler(store=sys.argv[1], leader_ttl=60, run_ttl=60, heartbeat=20)
scheduler.command("echo $$ > command; sleep 600", every(days=300), id="command", shell=True, cwd=sys.argv[2])
scheduler.task(bodies.spin_for_ever, id="function", executor="process")
if __name__ == "__main__":
    scheduler.run()
"""


@pytest.mark.timely
async def test_what_a_killed_replica_had_started_dies_with_it_and_is_lost_at_once(tmp_path):
    url = f"sqlite:///{tmp_path}/shared.db"
    (tmp_path / "app.py").write_text(APP)
    root = Path(__file__).parents[2]
    start = [sys.executable, str(tmp_path / "app.py"), url, str(tmp_path)]
    replica = subprocess.Popen(start, env={**os.environ, "PYTHONPATH": str(root)})
    other = None
    outside = Scheduler(store=url)
    try:
        await eventually(lambda: (tmp_path / "shared.db").exists(), 20)
        keys = []
        deadline = time.monotonic() + 20
        while not keys:
            try:
                keys.append((await outside.trigger("command")).key)
            except ValueError:  # not declared yet
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
        keys.append((await outside.trigger("function", args={"path": str(tmp_path / "function")})).key)
        pids = [tmp_path / "command", tmp_path / "function"]
        await eventually(lambda: all(path.exists() and path.read_text().strip() for path in pids), 20)
        other = subprocess.Popen(start, env={**os.environ, "PYTHONPATH": str(root)})
        replicas = outside.store
        while len((await replicas.roster()).replicas) < 2:
            await asyncio.sleep(0.02)
        killed = time.monotonic()
        replica.send_signal(signal.SIGKILL)
        replica.wait()
        for key in keys:
            while (await outside.ask(outside.fire_operations.find(key))).state != "lost":
                assert time.monotonic() - killed < 2.0
                await asyncio.sleep(0.02)
        assert all(gone(int(path.read_text())) for path in pids), "lost means that the body is dead"
    finally:
        await outside.stop()
        for process in (replica, other):
            if process is not None:
                process.kill()
                process.wait()
