"""Real engines for tests and the soak: their servers and workers as processes, and what can be done to them.

with celery(folder, {"FENCEPOST_STORE": url}) as place:
    place.env, place.replica_env           # for workers, for replicas
    place.kill_worker(), place.restart_servers(), place.tend()
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.servers import Proxy, Server, cut_after, rabbitmq, valkey
from tests.servers.kubernetes import ApiServer, Controller
from tests.servers.ports import HOST, Port

ROOT = Path(__file__).parents[2]
LOAD = "tests.engines.apps.load"


class Place(ABC):
    """An engine with its workers."""

    engine: str
    """Its name, as jobs have it."""

    def __init__(self, folder: Path, env: Mapping[str, str], workers: int) -> None:
        self.folder = folder
        self.number = workers
        self.env: dict[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")},
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
            "FENCEPOST_APP": f"{LOAD}:scheduler",
            "LOAD_ENGINE": self.engine,
            **env,
        }
        """For replicas and workers."""
        self.killed: dict[str, float] = {}
        """Workers, by the name that bodies write, and when."""
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def replica_env(self) -> dict[str, str]:
        """What replicas need of it, beside what they inherit."""
        ours = ("LOAD_", "FENCEPOST_", "PYTHONPATH")
        return {name: value for name, value in self.env.items() if name.startswith(ours)}

    @abstractmethod
    def worker_command(self) -> list[str]: ...

    @abstractmethod
    def restart_servers(self) -> str:
        """What was done."""

    def cut(self) -> str:
        """What was done to connections that are open now."""
        return "nothing"

    def start_worker(self) -> None:
        with (self.folder / f"worker{len(self.killed)}.log").open("ab") as log:
            self.workers.append(
                subprocess.Popen(
                    self.worker_command(),
                    cwd=ROOT,
                    env=self.env,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def tend(self) -> None:
        """Start workers in the place of those that have ended by themselves."""
        for worker in self.workers:
            if worker.poll() is not None:
                self.killed.setdefault(str(worker.pid), time.time())
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < self.number:
            self.start_worker()

    def kill_worker(self, draw: random.Random) -> str:
        worker = draw.choice(self.workers)
        self.killed[str(worker.pid)] = time.time()
        _kill(worker)
        return f"kill -9 of worker {worker.pid}, and a new one"

    def kill_all(self) -> None:
        for worker in self.workers:
            self.killed[str(worker.pid)] = time.time()
            _kill(worker)

    def __str__(self) -> str:
        """What there is, for a scene that does not end: workers write to their logs where each thread is."""
        for worker in self.workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGUSR1)
        time.sleep(2)
        return f"workers {[worker.pid for worker in self.workers]}"

    def close(self) -> None:
        self.kill_all()


class CeleryPlace(Place):
    """Workers of `pools`, one after the other: what Celery calls the pool, and how many bodies it holds."""

    engine = "celery"

    def __init__(
        self,
        broker: Server,
        folder: Path,
        env: Mapping[str, str],
        workers: int,
        pools: Sequence[tuple[str, int]],
        proxy: Proxy | None = None,
    ) -> None:
        url = broker.url if proxy is None else proxy.url
        app = {"LOAD_BROKER": url, "FENCEPOST_CELERY_APP": "tests.engines.apps.celery_app:app"}
        super().__init__(folder, {**env, **app}, workers)
        self._broker = broker
        self._proxy = proxy
        self._pools = itertools.cycle(pools)

    def worker_command(self) -> list[str]:
        pool, slots = next(self._pools)
        options = ["-P", pool, "-c", str(slots), "-l", "WARNING", "--without-mingle"]
        return [sys.executable, "-m", "celery", "-A", "tests.engines.apps.celery_app:app", "worker", *options]

    def restart_servers(self) -> str:
        self._broker.kill()
        self._broker.start()
        return "kill -9 of the broker, and started again"

    def cut(self) -> str:
        return f"{self._proxy.cut() if self._proxy is not None else 0} connections to the broker cut"


class DaskPlace(Place):
    engine = "dask"

    def __init__(self, folder: Path, env: Mapping[str, str], workers: int, slots: int) -> None:
        self._port = Port()
        address = f"tcp://{HOST}:{self._port.number}"
        super().__init__(folder, {**env, "FENCEPOST_DASK_SCHEDULER": address}, workers)
        self._slots = slots
        self._address = address
        self._start_scheduler()

    def _start_scheduler(self) -> None:
        # Scheduler and workers may be killed at any moment: no folder of theirs is worth keeping.
        command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", HOST]
        with (self.folder / "scheduler.log").open("ab") as log:
            self._scheduler = subprocess.Popen(
                [*command, "--port", str(self._port.number), "--no-dashboard"],
                cwd=self.folder,
                env=self.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def worker_command(self) -> list[str]:
        options = ["--no-nanny", "--no-dashboard", "--nthreads", str(self._slots), "--death-timeout", "30"]
        local = ["--local-directory", str(self.folder / "dask")]
        return [sys.executable, "-m", "distributed.cli.dask_worker", self._address, *options, *local]

    def restart_servers(self) -> str:
        _kill(self._scheduler)
        self._start_scheduler()
        return "kill -9 of the Dask scheduler, and a new one"

    def close(self) -> None:
        super().close()
        _kill(self._scheduler)
        self._port.release()


class KubernetesPlace(Place):
    engine = "kubernetes"

    def __init__(self, server: ApiServer, folder: Path, env: Mapping[str, str]) -> None:
        options = json.dumps({"image": "load:1"})
        found = {"FENCEPOST_KUBECONFIG": str(server.kubeconfig(folder)), "LOAD_OPTIONS": options}
        super().__init__(folder, {**env, **found}, 0)
        self.server = server
        self.controller = Controller(
            server.state, self.env, folder, ("fencepost.engine_worker", "fencepost.store.redis", LOAD)
        )
        self.controller.twice = 0.1

    def worker_command(self) -> list[str]:
        raise NotImplementedError("pods are started by the controller")

    def kill_worker(self, draw: random.Random) -> str:
        running = self.controller.running()
        lost = draw.sample(running, min(2, len(running)))
        for pod in lost:
            self.killed[pod] = time.time()
            self.controller.lose(pod)
        return f"{len(lost)} pods lost"

    def restart_servers(self) -> str:
        self.server.stop()
        self.server.state.forget_history()
        self.server.start()
        again = self.controller.restart()
        return f"API server restarted, its history forgotten; the controller started {len(again)} pods again"

    def __str__(self) -> str:
        """What there is: for a scene that does not end."""
        jobs, pods = (
            {each["metadata"]["name"]: each["status"] for each in self.server.state.all(kind)[0]}
            for kind in ("jobs", "pods")
        )
        active = [f"{name} {status}" for name, status in jobs.items() if "conditions" not in status]
        return "\n".join(
            [
                *active,
                *(
                    f"{name} {status}"
                    for name, status in pods.items()
                    if status["phase"] in ("Running", "Pending")
                ),
            ]
        )

    def cut(self) -> str:
        self.server.restart(away=1.0)
        return "API server away for a second"


@contextmanager
def celery(folder: Path, env: Mapping[str, str], workers: int = 3, slots: int = 40) -> Iterator[Place]:
    with valkey(appendonly=True, appendfsync="always") as broker, Proxy(broker.url) as proxy:
        proxy.rule(cut_after, match=b"LPUSH", every=15)
        pools = [("prefork", min(8, slots)), ("threads", slots), ("threads", slots)]
        yield from _running(CeleryPlace(broker, folder, env, workers, pools, proxy))


@contextmanager
def celery_on_rabbitmq(
    folder: Path, env: Mapping[str, str], workers: int = 3, slots: int = 40
) -> Iterator[Place]:
    with rabbitmq() as broker:
        pools = [("prefork", min(8, slots)), ("threads", slots), ("threads", slots)]
        yield from _running(CeleryPlace(broker, folder, env, workers, pools))


@contextmanager
def dask(folder: Path, env: Mapping[str, str], workers: int = 3, slots: int = 40) -> Iterator[Place]:
    yield from _running(DaskPlace(folder, env, workers, slots))


@contextmanager
def kubernetes(folder: Path, env: Mapping[str, str], workers: int = 0, slots: int = 0) -> Iterator[Place]:
    with ExitStack() as stack:
        server = stack.enter_context(ApiServer())
        server.lost_replies = 7
        place = KubernetesPlace(server, folder, env)
        stack.enter_context(place.controller)
        yield from _running(place)


PLACES = {"celery": celery, "dask": dask, "kubernetes": kubernetes, "rabbitmq": celery_on_rabbitmq}


def _running(place: Place) -> Iterator[Place]:
    try:
        place.tend()
        yield place
    finally:
        place.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
