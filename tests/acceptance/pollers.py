"""The polling service of examples/kubernetes as real processes. Its devices are here: they witness every poll."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx2

from poller.devices import Fleet, Poll
from tests.web.serving import ROOT, STARTING, ServerProcess, client_of, eventually, served, server_process

EXAMPLE = ROOT / "examples" / "kubernetes"
UVICORN = (
    "uvicorn",
    "--app-dir",
    str(EXAMPLE),
    "poller.app:app",
    "--port",
    "{port}",
    "--log-level",
    "warning",
)
QUICK: dict[str, Any] = {
    "execute_on": "leader",
    "leader_ttl": 1.2,
    "run_ttl": 1.2,
    "heartbeat": 0.4,
    "horizon": 3,
    "ready_delay": 0,
    "drain_timeout": 1,
}


@dataclass
class Pod:
    name: str
    process: ServerProcess
    client: httpx2.Client

    def status(self) -> dict[str, Any]:
        """What it says about itself and the cluster; nothing while it does not listen."""
        try:
            status: dict[str, Any] = self.client.get("/scheduler/status").json()
        except httpx2.HTTPError:
            return {}
        return status

    def probe(self, path: str) -> int:
        """The status, asked as the kubelet does, by the pod's address; 0 if it does not listen."""
        try:
            return int(self.client.get(path, headers={"Host": "10.42.0.7:8000"}).status_code)
        except httpx2.HTTPError:
            return 0

    @property
    def alive(self) -> bool:
        return self.process.popen.poll() is None

    @property
    def leads(self) -> bool:
        return bool(self.status().get("is_leader"))

    def metrics(self) -> dict[str, float]:
        lines = self.client.get("/metrics").text.splitlines()
        return {
            name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")
        }

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.popen.pid, number)

    def told(self) -> str:
        return self.process.told()


class Pollers:
    """Use as a context manager: whatever happens, every process is ended."""

    def __init__(self, valkey: str, folder: Path, *, devices: int = 3, **settings: Any) -> None:
        """`settings`: Fencepost's."""
        self.fleet = Fleet(failing=0.0)
        self.pods: list[Pod] = []
        self._folder = folder
        self._settings = {**QUICK, **settings}
        self._env = {
            "POLLER_VALKEY": valkey,
            "POLLER_DEVICES": str(devices),
            "POLLER_INTERVAL": "0.5",
            "POLLER_RETRY_FIRST": "0.2",
            "POLLER_LOG_FORMAT": "json",
        }
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._env["POLLER_DEVICES_URL"] = self._stack.enter_context(served(self.fleet.app))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def spawn(
        self, *names: str, env: Mapping[str, str] | None = None, command: Sequence[str] = UVICORN
    ) -> list[Pod]:
        """Start a pod of each name."""
        started = []
        for name in names:
            folder = self._folder / f"{len(self.pods)}-{name}"
            folder.mkdir()
            more = {**self._env, "POD_NAME": name, **(env or {})}
            process = self._stack.enter_context(server_process(command, folder, more, **self._settings))
            pod = Pod(name, process, self._stack.enter_context(client_of(process.url)))
            self.pods.append(pod)
            started.append(pod)
        return started

    def start(self, *names: str, env: Mapping[str, str] | None = None) -> list[Pod]:
        """Start a pod of each name, and return when all take part."""
        started = self.spawn(*names, env=env)
        self.all_ready()
        return started

    def all_ready(self) -> None:
        eventually(lambda: all(pod.status().get("ready") for pod in self.pods if pod.alive), STARTING)

    def leader(self, among: Sequence[Pod] | None = None) -> Pod:
        """Whoever says of itself that it leads."""
        found: Pod = eventually(lambda: next((pod for pod in among or self.pods if pod.leads), None))
        return found

    def polls_after(self, moment: float) -> list[Poll]:
        """`moment` on the monotonic clock."""
        return [poll for poll in list(self.fleet.polls) if poll.at > moment]

    def polls_due_after(self, moment: str) -> list[Poll]:
        """Of fires that fell due after it; `moment` as fires are named."""
        return [poll for poll in list(self.fleet.polls) if poll.fire.partition("@")[2] > moment]

    def polls_by_fire(self) -> dict[str, list[Poll]]:
        found: dict[str, list[Poll]] = defaultdict(list)
        for poll in list(self.fleet.polls):
            found[poll.fire].append(poll)
        return found

    def polled_twice(self) -> list[str]:
        """Fires for which devices were asked more than once. None of them fails here by itself."""
        return [fire for fire, polls in self.polls_by_fire().items() if len(polls) > 1]
