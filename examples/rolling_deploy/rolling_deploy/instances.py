"""Instances of the application: `uvicorn`, as anybody would start it, each a process with a port of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fencepost.clock import SystemClock
from rolling_deploy.balancer import HOST, Backend, Balancer

STARTING = 30.0
"""Seconds an instance may take to become ready."""
APP = "rolling_deploy.app:app"
HERE = Path(__file__).parents[1]


@dataclass(eq=False)
class Instance:
    name: str
    popen: subprocess.Popen[bytes]
    backend: Backend
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid


@dataclass
class Instances:
    """Use as a context manager: whatever happens, each is ended by its id."""

    folder: Path
    balancer: Balancer
    env: Mapping[str, str]
    workers: int = 1
    all: list[Instance] = field(default_factory=list)

    def __enter__(self) -> Instances:
        return self

    def __exit__(self, *_: object) -> None:
        for instance in self.all:
            if instance.popen.poll() is None:
                os.killpg(instance.pid, signal.SIGKILL)
            instance.popen.wait()

    async def start(self) -> Instance:
        """Returns when it is ready, and gets connections."""
        instance = self._spawn(f"instance-{len(self.all) + 1}", free_port())
        deadline = SystemClock().steady() + STARTING
        while not instance.backend.ready:
            if instance.popen.poll() is not None or SystemClock().steady() > deadline:
                end = instance.log.read_text()[-2000:]
                raise RuntimeError(f"{instance.name} did not become ready. Its log ends:\n{end}")
            await asyncio.sleep(0.02)
        return instance

    async def end(self, instance: Instance, number: signal.Signals = signal.SIGTERM) -> float:
        """Seconds it took."""
        begun = SystemClock().steady()
        if number is signal.SIGKILL:
            os.killpg(instance.pid, number)
        else:
            instance.popen.send_signal(number)
        await asyncio.to_thread(instance.popen.wait, STARTING)
        self.balancer.remove(instance.backend)
        return SystemClock().steady() - begun

    def _spawn(self, name: str, port: int) -> Instance:
        command = [
            "uvicorn",
            APP,
            "--port",
            str(port),
            "--workers",
            str(self.workers),
            "--log-level",
            "warning",
        ]
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self.folder,  # no settings file of anybody reaches it
                env={**os.environ, "PYTHONPATH": str(HERE), "HOSTNAME": name, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        instance = Instance(name, popen, self.balancer.add(port), log)
        self.all.append(instance)
        return instance


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
