"""One run of one contender: its processes, on an empty store of a server that all share, for a time."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.peers.contenders import Contender
from bench.peers.environment import ROOT, python_of
from bench.peers.figures import Counted, Grid, Start, counted, paced, whole
from bench.peers.work import Work
from bench.places import SERVERS, Place
from bench.rate import Used

from tests.servers import PostgresServer, RedisServer, Server

START = 3.0
"""Seconds that processes have to start before the first fire, beside what registering takes."""
CATCH_UP = 20.0
"""More of them for those that begin with what fell due before they were ready."""
PATIENCE = 60.0


class Servers:
    """One of each kind for the whole run, started when first needed; a contender gets an empty one."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[str, Server] = {}

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def place(self, store: str) -> Iterator[Place]:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-peers-")))
            if store not in SERVERS:
                url = f"sqlite:///{folder}/bench.db" if store == "sqlite" else "memory://"
                yield Place(url, folder)
                return
            if store not in self._running:
                self._running[store] = self._stack.enter_context(SERVERS[store]())
            server = self._running[store]
            url = server.url
            if isinstance(server, PostgresServer):
                url = stack.enter_context(server.database())
            elif isinstance(server, RedisServer):
                empty(server)
            yield Place(url, folder, server)


def empty(server: RedisServer) -> None:
    import redis

    with redis.Redis.from_url(server.url) as client:
        client.flushall()


class Scene:
    """Use as a context manager: whatever happens, every process is ended."""

    def __init__(self, contender: Contender, place: Place, rate: int, replicas: int) -> None:
        self.contender = contender
        self.place = place
        # Beyond 1,000 fires a second jobs are due each second: five times as many would only measure registering.
        period = contender.period if rate < 1000 else 1
        jobs = rate * period
        self.grid = Grid(jobs, period, contender.spread)
        self.replicas: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self._number = replicas
        lead = START + jobs * contender.register_s
        self.work = Work(
            url=place.url,
            jobs=jobs,
            period=period,
            begin=math.ceil(time.time() + lead),
            folder=str(place.folder),
            spread=contender.spread,
            parent=os.getpid(),
        )

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        return [*self.replicas, *self.workers]

    def start(self) -> float:
        """Returns when all processes are ready: the moment, on a whole second, from which fires can be measured."""
        prepare = self._spawn("prepare")
        try:
            if prepare.wait(PATIENCE * 2):
                raise RuntimeError(f"{self.contender.name} could not be prepared: {self._errors(prepare)}")
        finally:
            prepare.kill()
        if self.contender.app in WITH_WORKER:
            self.workers.append(self._spawn("worker"))
        self.replicas += [self._spawn("replica") for _ in range(self._number)]
        folder = self.place.folder
        self.wait_for(
            lambda: all((folder / f"ready.{process.pid}").exists() for process in self.processes),
            "all processes are ready",
        )
        first = self.contender.warm_s + (self.grid.period if self.contender.drifts else 0)
        sleep_until(max(self.work.begin, time.time()) + first)
        deadline = time.time() + CATCH_UP
        while time.time() < deadline and not self._caught_up():
            time.sleep(0.25)
        return math.ceil(time.time())

    def _caught_up(self) -> bool:
        """Whether what fell due a second or two ago has started."""
        until = math.floor(time.time() - 1.0)
        return self.whole(until - 1.0, until)

    def whole(self, since: float, until: float) -> bool:
        """Whether all that was due from `since` up to `until` has started."""
        return whole(self.starts(), self.grid, since, until, self.contender.drifts)

    def counted(self, since: float, until: float) -> Counted:
        count = paced if self.contender.drifts else counted
        return count(self.starts(), self.grid, since, until)

    def used(self) -> Used:
        self._check()
        return Used.so_far(self.processes, self.place)

    def starts(self) -> list[Start]:
        found = []
        for path in self.place.folder.glob("notes.*"):
            pid = int(path.suffix[1:])
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):  # not in the middle of being written
                    job, due, at = line.split()
                    found.append(Start(int(job), None if due == "-" else float(due), float(at), pid))
        return found

    def leader(self) -> int | None:
        """The process that said last that it leads, if this kind has a leader."""
        path = self.place.folder / "leader"
        return int(path.read_text() or 0) if path.exists() else None

    def kill(self, pid: int) -> float:
        """`kill -9`; when."""
        process = next(process for process in self.replicas if process.pid == pid)
        at = time.time()
        process.kill()
        process.wait()
        self.replicas.remove(process)
        return at

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self._check()
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self.contender.name}: not within {seconds:.0f} s: {what}. {self._errors(self.processes[0])}"
                )
            time.sleep(0.05)

    def _check(self) -> None:
        for process in self.processes:
            if process.poll() is not None:
                raise RuntimeError(f"a process of {self.contender.name} ended: {self._errors(process)}")

    def _spawn(self, role: str) -> subprocess.Popen[bytes]:
        command = [python_of(self.contender.environment), "-m", "bench.peers.child", self.contender.app]
        errors = self.place.folder / f"errors.{role}.{len(self.processes)}"
        with errors.open("wb") as file:
            process = subprocess.Popen(
                [*command, role, self.work.to_json()],
                cwd=ROOT,
                env=surroundings(),
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        errors.rename(self.place.folder / f"errors.{process.pid}")
        return process

    def _errors(self, process: subprocess.Popen[bytes]) -> str:
        return (self.place.folder / f"errors.{process.pid}").read_text()[-800:]


WITH_WORKER = ("redbeat", "taskiq")


def surroundings() -> dict[str, str]:
    """The environment without settings of ours: all run with their defaults."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("FENCEPOST_", "PYTHON"))
    }
    return {**kept, "PYTHONWARNINGS": "ignore"}


def sleep_until(wall: float) -> None:
    time.sleep(max(0.0, wall - time.time()))


def pids(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    return [process.pid for process in processes]
