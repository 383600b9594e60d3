"""A store's path that cannot be written, and an extra that is not installed: refused at the start, with the reason."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fencepost import Scheduler
from fencepost.errors import StoreUnusable
from fencepost.store.urls import store_from_url
from tests.unit.test_cli import environment

APP = "from fencepost import Scheduler\nscheduler = Scheduler(heartbeat=1, drain_timeout=1)\n"
NOBODY = 65534


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("x")
    (tmp_path / "a_folder").mkdir()
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("sqlite:///none/x.db", "cannot write none/x.db: there is no folder none; create it first"),
        ("sqlite:///a_file/x.db", "cannot write a_file/x.db: a_file is not a folder"),
        (
            "sqlite:///a_folder",
            "a_folder is a folder; name a database in it, such as sqlite:///a_folder/fencepost.db",
        ),
        ("sqlite:////proc/x.db", "cannot write /proc/x.db: No such file or directory"),
        ("file:none/jobs", "cannot write none/jobs: there is no folder none; create it first"),
        ("file:a_file/jobs", "cannot write a_file/jobs: a_file is not a folder"),
        ("file:///proc/jobs", "cannot write /proc/jobs: No such file or directory"),
    ],
)
async def test_a_path_that_cannot_be_written_ends_the_start(folder, url, reason):
    scheduler = Scheduler(url)
    with pytest.raises(StoreUnusable) as refused:
        await scheduler.start()
    assert str(refused.value) == reason
    assert refused.value.exit_code == 69
    await scheduler.stop()


async def test_a_database_that_is_locked_is_waited_for(folder):
    """It passes by itself, so it must not be taken for a path that cannot be written."""
    store = store_from_url("sqlite:///x.db")
    await store.open()
    await store.close()
    code = "import sqlite3; db = sqlite3.connect('x.db'); db.execute('begin immediate'); print(1, flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdin is not None
    assert other.stdout is not None
    scheduler = Scheduler("sqlite:///x.db")
    try:
        assert other.stdout.readline()
        await scheduler.start()  # tries again, and says so
        assert not scheduler.replica.is_ready
    finally:
        other.communicate(b"\n")
        await scheduler.stop()


PERMISSION = """
import asyncio, os, sys
from fencepost.errors import FencepostError
from fencepost.store.urls import store_from_url
url, user = sys.argv[1:]
store_from_url("sqlite:///x"), store_from_url("file:x")
if os.geteuid() == 0:  # after the imports: where Python is installed may be closed to others
    os.seteuid(int(user))
try:
    asyncio.run(store_from_url(url).open())
except FencepostError as error:
    print(type(error).__name__, error.exit_code, error)
"""


@pytest.mark.parametrize("kind", ["sqlite", "file"])
@pytest.mark.parametrize("closed", ["folder", "what an earlier user has left"])
def test_a_place_that_this_user_may_not_write(kind, closed):
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777 if closed != "folder" else 0o555)
        path = f"{name}/store"
        if closed != "folder":
            made = Path(f"{path}-fencepost") if kind == "sqlite" else Path(path)
            made.mkdir(mode=0o700)
            made.chmod(0o500)
        url = f"sqlite:///{path}" if kind == "sqlite" else f"file://{path}"
        done = subprocess.run(
            [sys.executable, "-c", PERMISSION, url, str(NOBODY)], capture_output=True, text=True, timeout=120
        )
        os.chmod(name, 0o777)
    assert done.stdout.startswith(f"StoreUnusable 69 cannot write {path}: "), done.stdout + done.stderr
    assert "may not be written by user" in done.stdout or "Permission denied" in done.stdout


@pytest.mark.cluster
@pytest.mark.parametrize(
    "command", [["run", "app:scheduler", "--seconds", "3"], ["serve", "app:scheduler", "--port", "0"]]
)
def test_run_and_serve_exit_69_with_the_reason(folder, command):
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", *command],
        env=environment(FENCEPOST_STORE="sqlite:///a_file/x.db"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 69, done.stderr
    assert done.stderr.splitlines()[-1] == "fencepost: cannot write a_file/x.db: a_file is not a folder"
    assert "Traceback" not in done.stderr


WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from fencepost.cli import outcome
sys.exit(outcome(sys.argv[2:]))
"""
PIPELINE = """
from fencepost import Pipeline, Scheduler, Source, every
scheduler = Scheduler("memory://")
pipeline = Pipeline("refresh", sources=[Source("stops", "https://example.org/stops")])
scheduler.job(every(hours=1))(pipeline)
"""
GUARD = "from fencepost.apscheduler import guard\nscheduler = None\n"


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("missing", "command", "store", "extra", "app"),
    [
        ("redis", "run", "redis://127.0.0.1:1/0", "redis", APP),
        ("redis", "serve", "redis://127.0.0.1:1/0", "redis", APP),
        ("redis", "status", "valkey://127.0.0.1:1/0", "redis", APP),
        ("psycopg", "run", "postgresql://127.0.0.1:1/x", "postgres", APP),
        ("starlette", "serve", "memory://", "web", APP),
        ("uvicorn", "serve", "memory://", "web", APP),
        ("httpx2", "run", "memory://", "http", PIPELINE),
        ("apscheduler", "run", "memory://", "apscheduler", GUARD),
    ],
)
def test_a_host_without_the_extra_says_what_to_install(folder, missing, command, store, extra, app):
    (folder / "app.py").write_text(app)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, command, "app:scheduler"],
        env=environment(FENCEPOST_STORE=store),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 78, done.stderr
    assert f"pip install 'fencepost[{extra}]'" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
