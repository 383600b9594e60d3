"""A copy of `examples/django_shop` with jobs of the test's own: real `manage.py`, real servers, a real database."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from fencepost.errors import FencepostError
from fencepost.model import ReplicaRecord
from fencepost.store.urls import store_from_url

EXAMPLE = Path(__file__).parents[2] / "examples" / "django_shop"
BIN = Path(sys.executable).parent
PATIENCE = 30.0

JOBS = """
import os

from fencepost import Fire
from fencepost.django import every
from shop.models import Run

CODE = "first"


def note(fire: Fire) -> None:
    Run.objects.create(job=fire.job_id, fire_key=fire.key, code=CODE, pid=os.getpid())


@every(seconds=1)
def tick(fire: Fire) -> None:
    note(fire)


@every(seconds=1)
def tock(fire: Fire) -> None:
    note(fire)


@every(seconds=1)
async def chime(fire: Fire) -> None:
    await Run.objects.acreate(job=fire.job_id, fire_key=fire.key, code=CODE, pid=os.getpid())
"""


class Site:
    def __init__(self, folder: Path, database_url: str | None = None, jobs: str = JOBS) -> None:
        self.folder = folder / "site"
        self.database_url = database_url
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("*.sqlite3", "__pycache__"))
        self.write("shop/jobs.py", jobs)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")},
            "DJANGO_SETTINGS_MODULE": "shop_site.settings",
            "SQLITE_FILE": str(self.folder / "db.sqlite3"),
            "PYTHONPATH": str(self.folder),
            "PYTHONWARNINGS": "default",
            "FENCEPOST_HEARTBEAT": "1s",
            "FENCEPOST_RUN_TTL": "5s",
            "FENCEPOST_LEADER_TTL": "5s",
            "HOME": str(self.folder),
            **({"DATABASE_URL": database_url} if database_url else {}),
        }

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def append(self, name: str, text: str) -> None:
        self.write(name, (self.folder / name).read_text(encoding="utf-8") + text)

    def manage(self, *arguments: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0 or not check, (
            f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done

    def json(self, *arguments: str, check: bool = True) -> Any:
        return json.loads(self.manage("fencepost", *arguments, "--json", check=check).stdout)

    def shell(self, code: str) -> Any:
        """What the code puts into `answer`, in `manage.py shell`."""
        self.write(
            "script.py", f"import json\nanswer = {{}}\n{code}\nprint(json.dumps(answer, default=str))\n"
        )
        done = self.manage("shell", "-v0", "-c", "import script")
        return json.loads(done.stdout.splitlines()[-1])

    def runs(self) -> list[dict[str, Any]]:
        """What bodies wrote, read without Django."""
        fields = ("job", "fire_key", "code", "pid")
        query = f"select {', '.join(fields)} from shop_run order by id"
        rows: list[Any] = []
        if self.database_url is not None:
            with psycopg.connect(self.database_url) as connection:
                rows = connection.execute(query).fetchall()
        else:
            with closing(sqlite3.connect(self.env["SQLITE_FILE"], timeout=20)) as database:
                rows = database.execute(query).fetchall()
        return [dict(zip(fields, row, strict=True)) for row in rows]

    @property
    def store_url(self) -> str:
        return self.database_url or f"sqlite:///{self.env['SQLITE_FILE']}"

    def replicas(self) -> list[ReplicaRecord]:
        """Those in the store; none while there is no store. Looking makes none."""

        async def look() -> list[ReplicaRecord]:
            store = store_from_url(self.store_url)
            store.creates = False
            try:
                await store.open()
                return list((await store.roster()).replicas)
            finally:
                await store.close()

        try:
            return asyncio.run(look())
        except FencepostError:
            return []

    @contextmanager
    def running(self, *command: str | Path, **env: str) -> Iterator[Server]:
        server = Server([str(word) for word in command], self.folder, {**self.env, **env})
        try:
            yield server
        finally:
            server.stop()

    def wait_for(self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
            time.sleep(0.2)
        return found


class Server:
    def __init__(self, command: Sequence[str], folder: Path, env: dict[str, str]) -> None:
        self.log = folder / f"{Path(command[0]).name}-{time.monotonic_ns()}.log"
        with self.log.open("w") as log:
            self.popen = subprocess.Popen(
                command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
            )

    def said(self) -> str:
        return self.log.read_text()

    def children(self) -> list[int]:
        found = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children").read_text().split()
        return [int(pid) for pid in found]

    def stop(self) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
        try:
            return self.popen.wait(40)
        except subprocess.TimeoutExpired:
            os.killpg(self.popen.pid, signal.SIGKILL)
            raise


def gunicorn(port: int, *options: str, workers: int = 4) -> list[str]:
    bind = ["-w", str(workers), "-b", f"127.0.0.1:{port}"]
    return [str(BIN / "gunicorn"), *bind, *options, "shop_site.wsgi"]


def uvicorn(port: int, workers: int = 4) -> list[str]:
    return [
        str(BIN / "uvicorn"),
        "--workers",
        str(workers),
        "--port",
        str(port),
        "shop_site.asgi:application",
    ]


def verdict(site: Site) -> dict[str, Any]:
    """What bodies wrote, the ledger and the audit beside each other. Three records that do not know of each other."""
    runs = Counter(run["fire_key"] for run in site.runs())
    audit = site.json("audit", check=False)
    fires = {fire["key"]: fire for fire in site.json("fires", "--limit", "10000")}
    succeeded = {key for key, fire in fires.items() if fire["state"] == "succeeded"}
    return {
        "runs": sum(runs.values()),
        "doubled": sorted(key for key, times in runs.items() if times > 1),
        "succeeded": len(succeeded),
        "succeeded_without_a_row": sorted(succeeded - set(runs)),
        "rows_without_a_fire": sorted(set(runs) - set(fires)),
        "states": dict(Counter(fire["state"] for fire in fires.values())),
        "audit": {name: audit[name] for name in ("expected", "ran", "skipped", "missed", "lost", "pending")},
        "unaccounted": audit["unaccounted"],
        "audit_doubled": audit["doubled"],
    }


def is_clean(found: dict[str, Any]) -> bool:
    return not any(
        found[name]
        for name in (
            "doubled",
            "succeeded_without_a_row",
            "rows_without_a_fire",
            "unaccounted",
            "audit_doubled",
        )
    )
