"""Sample applications under the servers they are used with, and a judge of what their jobs did."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fencepost.insight.audit import AuditResult, audit
from fencepost.model import FireRecord, State
from fencepost.store.base import FireQuery
from fencepost.store.urls import store_from_url
from tests.cluster.harness import Fault, Reader
from tests.servers.ports import Port

ROOT = Path(__file__).parents[2]
APPS = "tests.guard.apps"
SHORT = {"FENCEPOST_LEADER_TTL": "2", "FENCEPOST_RUN_TTL": "2", "FENCEPOST_HEARTBEAT": "0.5"}
JOBS = ("poll", "tidy", "greet")


@dataclass(frozen=True)
class Note:
    job: str
    key: str
    pid: int
    wall: float


class Application:
    """One application, started as its users would. Use as a context manager: whatever happens, all of it is ended."""

    def __init__(
        self,
        folder: Path,
        store: str | None,
        env: dict[str, str] | None = None,
        *,
        reader_url: str | None = None,
    ) -> None:
        """Without a store it is not guarded. `reader_url`: the store as we look at it, if another way leads there."""
        self.folder = folder
        self.store = store
        self.notes_file = folder / "notes"
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")},
            **SHORT,
            "PYTHONFAULTHANDLER": "1",
            "NOTES": str(self.notes_file),
            "PYTHONPATH": str(ROOT),
            **({"GUARDED": "1", "FENCEPOST_STORE": store} if store else {}),
            **(env or {}),
        }
        self._port = Port()
        self._stopped_at = float("inf")
        self._groups: list[subprocess.Popen[bytes]] = []
        self._reader_url = reader_url or store
        self.reader = Reader(self._reader_url) if self._reader_url else None

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._port.release()
        if self.reader is not None:
            self.reader.close()

    def under_uvicorn(self, workers: int, app: Sequence[str] = (f"{APPS}.fastapi_app:app",)) -> None:
        options = ["--workers", str(workers), "--port", str(self._port.number), "--log-level", "warning"]
        options += ["--timeout-worker-healthcheck", "30"]  # on a busy machine
        self._spawn([sys.executable, "-m", "uvicorn", *app, *options])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port.number}"

    def under_gunicorn(
        self, workers: int, app: str = f"{APPS}.flask_app:app", options: Sequence[str] = ()
    ) -> None:
        bind = f"127.0.0.1:{self._port.number}"
        command = [sys.executable, "-m", "gunicorn", app, "--no-control-socket", *options]
        self._spawn([*command, "-w", str(workers), "-b", bind, "--log-level", "warning"])

    def as_service(self, times: int, app: str = f"{APPS}.service") -> None:
        for _ in range(times):
            self._spawn([sys.executable, "-m", app])

    def under_flask(self, app: str, options: Sequence[str] = ()) -> None:
        port = str(self._port.number)
        self._spawn([sys.executable, "-m", "flask", "--app", app, "run", "--port", port, *options])

    def _spawn(self, command: Sequence[str]) -> None:
        with (self.folder / "stderr").open("ab") as stderr:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self._env,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
            )
        self._groups.append(process)

    # --- what it does ---------------------------------------------------------------------------------------

    def notes(self) -> list[Note]:
        if not self.notes_file.exists():
            return []
        words = [line.split() for line in self.notes_file.read_text().splitlines()]
        return [Note(job, key, int(pid), float(wall)) for job, key, pid, wall in words]

    def told(self) -> str:
        return (self.folder / "stderr").read_text()

    def wait_for(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self.told()[-4000:]}"
            time.sleep(0.02)

    def pids(self) -> set[int]:
        """Of the processes that take part."""
        assert self.reader is not None
        return {replica.pid for replica in self.reader.roster().replicas}

    def all_here(self, processes: int, without: int = 0) -> None:
        self.wait_for(
            lambda: len(self.pids() - {without}) >= processes, 120, f"{processes} processes take part"
        )

    def kill_one(self) -> Fault:
        """The leader, with `kill -9`."""
        assert self.reader is not None
        roster = self.reader.roster()
        leader = next(replica for replica in roster.replicas if replica.id == roster.leader.holder)
        os.kill(leader.pid, signal.SIGKILL)
        return Fault("kill -9", leader.pid, time.time())

    def settled(self) -> None:
        """Wait until everything that is due now is final."""
        assert self.reader is not None
        reader, until = self.reader, datetime.now(UTC)
        since = until - timedelta(hours=1)
        self.wait_for(
            lambda: all(fire.state.final for fire in reader.fires(since, until)),
            8,
            "all due fires are settled",
        )

    def stop(self) -> list[int]:
        self._stopped_at = time.time()
        for process in self._groups:
            process.terminate()
        try:
            return [process.wait(120) for process in self._groups]
        except subprocess.TimeoutExpired:
            for process in self._groups:
                os.killpg(process.pid, signal.SIGABRT)  # they tell where they are
            time.sleep(1)
            raise AssertionError(f"does not end: {self.told()[-8000:]}") from None

    # --- the verdict ------------------------------------------------------------------------------------------

    def judged(self, killed: Fault | None = None) -> AuditResult:
        """Every fire once: by the ledger, by the audit, and by what the jobs themselves wrote down."""
        assert self._reader_url is not None
        report, fires = asyncio.run(_read(self._reader_url))
        assert report.clean, report.findings
        starts = Counter(note.key for note in self.notes())
        assert "-" not in starts, "a job ran that was not claimed"
        twice = {key: times for key, times in starts.items() if times > 1}
        assert not twice, f"ran more than once: {twice}"
        by_key = {fire.key: fire for fire in fires}
        ran = {key for key, fire in by_key.items() if fire.state is State.SUCCEEDED}
        assert ran <= starts.keys(), "succeeded without having run"
        for key in starts.keys() - ran:
            assert by_key[key].state is State.CANCELLED or self._was_cut_off(by_key[key], killed), by_key[key]
        others = Counter(fire.state.value for fire in fires if fire.state.final and fire.key not in starts)
        assert others.keys() <= ({"lost"} if killed else set()), f"{others}\n{self.told()[-3000:]}"
        return report

    def _was_cut_off(self, fire: FireRecord, fault: Fault | None) -> bool:
        """By the kill; or by the end of a server that does not wait for the jobs of an application that does not drain.
        Nobody may be left then to put it on record."""
        began = fire.started_at.timestamp() if fire.started_at else 0.0
        if began >= self._stopped_at - 1:
            return fire.state in (State.LOST, State.RUNNING)
        return fire.state is State.LOST and fault is not None and began <= fault.begun


async def _read(url: str) -> tuple[AuditResult, list[FireRecord]]:
    store = store_from_url(url)
    await store.open()
    try:
        due = await store.find_fires(FireQuery(until=datetime.now(UTC), limit=50_000))
        return await audit(store), list(due)
    finally:
        await store.close()
