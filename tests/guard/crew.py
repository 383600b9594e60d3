"""The workers of one application, as processes: four that are guarded, or one that is not, to compare with."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from fencepost.apscheduler.names import is_made_up
from tests.guard.apps.worker import once, work

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.guard.apps.worker"])  # imported once, for all workers
PATIENCE = 40.0
Run = tuple[str, str]
"""A job's id, and the name of the moment at which it was due."""


@dataclass(eq=False)
class Worker:
    process: ForkServerProcess
    pipe: Connection

    def ask(self, method: str, *args: Any, **options: Any) -> None:
        self.pipe.send((method, args, options))
        self.answered()

    def answered(self) -> None:
        assert self.pipe.poll(PATIENCE), "a worker does not answer"
        error = self.pipe.recv()
        assert error is None, f"{self.process.pid}: {error}"


@dataclass(eq=False)
class Crew:
    """Use as a context manager: whatever happens, every process is ended."""

    folder: Path
    size: int
    store: str | None = None
    job_store: str | None = None
    cut_off: Callable[[], Any] = lambda: None
    """What begins an outage, and ends it."""
    mended: Callable[[], Any] = lambda: None
    workers: list[Worker] = field(default_factory=list)
    _jobs: tuple[dict[str, Any], ...] = ()
    _moments: dict[str, datetime] = field(default_factory=dict)
    _pace: float = 1.0

    def __enter__(self) -> Crew:
        self.folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()

    # --- what a scene says -----------------------------------------------------------------------------------

    def at(self, name: str, seconds: float) -> datetime:
        """A moment, so many seconds from now; more if this machine is busy."""
        ahead = timedelta(seconds=seconds * (self._pace if seconds > 0 else 1))
        return self._moments.setdefault(name, datetime.now(UTC) + ahead)

    def now(self) -> datetime:
        return self.at("now", 0)

    def start(self, *jobs: dict[str, Any]) -> None:
        """All workers at the same time, each with these jobs."""
        self._jobs, begun = jobs, time.monotonic()
        self._replace(self.size)
        self._pace = min(10.0, max(1.0, time.monotonic() - begun))

    def add(self, **job: Any) -> None:
        """Each of them; their successors begin with it."""
        self._jobs += (job,)
        self.everyone("add_job", **job)
        self.carried()

    def ask(self, method: str, *args: Any, **options: Any) -> None:
        """The first of the workers."""
        self.workers[0].ask(method, *args, **options)

    def everyone(self, method: str, *args: Any, **options: Any) -> None:
        for worker in self.workers:
            worker.ask(method, *args, **options)

    def carried(self) -> None:
        """Until the store has what all of them were asked for."""
        self.everyone("carried")

    def takes_no_runs(self) -> None:
        """The first one, which will be killed: that shall not cut off a run."""
        if self.store:
            self.ask("pause")

    def kill(self, *, replace: bool = False) -> None:
        """The first one, as soon as the store has what it was asked for. One that is alone stays."""
        self.ask("carried")
        self._kill(self.workers[0].process.pid, replace)

    def kill_the_one_that_runs(self) -> None:
        self.ran(1)
        self._kill(self.notes()[0][2], replace=False)

    def restart(self, after: datetime | None = None) -> None:
        """All are stopped, and later started anew."""
        self.carried()
        self.everyone("shutdown")
        self.workers.clear()
        self.passed(after)
        self._replace(self.size)

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.cut_off()
        yield
        time.sleep(0.5)
        self.mended()

    def passed(self, moment: datetime | None, seconds: float = 0.2) -> None:
        """Wait until this moment has passed, and so many seconds more."""
        if moment is not None:
            time.sleep(max(0.0, (moment - datetime.now(UTC)).total_seconds() + seconds))

    def ran(self, times: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(self.notes()) < times:
            assert time.monotonic() < deadline, f"{times} runs, but {self.notes()}\n{self.told()}"
            time.sleep(0.02)

    # --- what came of it -------------------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        """Ids that APScheduler has made up differ, of course."""
        return sorted(("?" if is_made_up(job) else job, self._name(due)) for job, due, _ in self.notes())

    def over(self) -> None:
        """Wait until nothing more can happen: all moments have passed, but for those that are far away."""
        horizon = datetime.now(UTC) + timedelta(minutes=30)
        self.passed(max((each for each in self._moments.values() if each < horizon), default=None), 1.0)
        if not self.store:
            self.everyone("idle")
            time.sleep(0.2)  # the listener notes it right after the executor has

    def notes(self) -> list[tuple[str, float, int]]:
        file = self.folder / "notes"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(job, float(due), int(pid)) for job, due, pid in map(str.split, lines)]

    def told(self) -> str:
        lines = (self.folder / "log").read_text().splitlines()
        return "\n".join(line for line in lines if "held up" not in line)[-6000:]

    def _name(self, due: float) -> str:
        """What is due "now" is so by the clock of the worker, a bit later."""
        return min(self._moments, key=lambda name: abs(self._moments[name].timestamp() - due))

    # --- processes -------------------------------------------------------------------------------------------

    def _replace(self, number: int) -> None:
        started = [self._spawn() for _ in range(number)]
        self.workers += started
        for worker in started:
            worker.answered()
        self.everyone("carried")

    def _spawn(self) -> Worker:
        here, there = FORKED.Pipe()
        process = FORKED.Process(
            target=work, args=(there, str(self.folder), self.store, self.job_store, self._jobs), daemon=True
        )
        process.start()
        there.close()
        return Worker(process, here)

    def _kill(self, pid: int | None, replace: bool) -> None:
        if self.size == 1:
            return
        [victim] = [worker for worker in self.workers if worker.process.pid == pid]
        victim.process.kill()
        victim.process.join()
        self.workers.remove(victim)
        if replace:
            self._replace(1)


def job(id: str = "x", func: Callable[..., Any] = once, **options: Any) -> dict[str, Any]:
    return {"func": func, "id": id, "replace_existing": True, "misfire_grace_time": 30, **options}
