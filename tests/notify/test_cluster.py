"""Three replicas, the leader killed while ten causes arise, receivers down: every cause arrives, under one id."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiosmtpd.controller import Controller

from fencepost import Scheduler
from fencepost.store.base import Store
from tests.notify.receivers import (
    PING_KEY,
    FakeHealthchecks,
    FakeSentry,
    Receiver,
    Request,
    running,
    signed_by,
)
from tests.notify.test_mail import Box

T = TypeVar("T")
APPS = Path(__file__).parent / "apps"
JOBS = [f"job-{number}" for number in range(10)]
DOWN = float(os.environ.get("RECEIVERS_DOWN", "4"))
"""Seconds for which no receiver answers after the leader's death."""
PATIENCE = 120 + DOWN
KEY = "0123456789abcdef"

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(400)]


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]


def eventually(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


class Replicas:
    """`fencepost run`, three times."""

    def __init__(self, folder: Path, store: str, channels: dict[str, Any], app: str = "alerting") -> None:
        self.folder = folder
        self.app = app
        self.store = store
        self.env = {**os.environ, "FENCEPOST_STORE": self.store, "CHANNELS": json.dumps(channels)}
        self.processes: list[subprocess.Popen[bytes]] = []
        self._outside = Scheduler(store=self.store)

    def start(self) -> None:
        log = (self.folder / f"replica-{len(self.processes)}.log").open("wb")
        command = [sys.executable, "-m", "fencepost", "run", f"{self.app}:scheduler"]
        self.processes.append(subprocess.Popen(command, cwd=APPS, env=self.env, stdout=log, stderr=log))
        log.close()

    def leader(self) -> int | None:
        async def ask(store: Store) -> int | None:
            roster = await store.roster()
            found = [each.pid for each in roster.replicas if each.id == roster.leader.holder]
            return found[0] if found else None

        return self.with_store(ask)

    def watched(self) -> bool:
        """Whether the leader has given every job the rules of all four channels: from then on they hold."""

        async def ask(store: Store) -> bool:
            records = await store.jobs()
            return len(records) == len(JOBS) and all(len(each.watch) == 4 for each in records)

        return self.with_store(ask)

    def trigger(self, jobs: list[str]) -> None:
        async def ask(store: Store) -> None:
            for job in jobs:
                await self._outside.fire_operations.trigger(job)

        self.with_store(ask)

    def with_store(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        async def session() -> T:
            store = self._outside.store
            await store.open()
            try:
                return await ask(store)
            finally:
                await store.close()

        return asyncio.run(session())

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("replica-*.log")))

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(60)


@pytest.fixture
def ports() -> list[int]:
    return free_ports(4)


@pytest.fixture(params=["sqlite", "postgres_url", "valkey_url"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        f"sqlite:///{tmp_path}/jobs.db"
        if request.param == "sqlite"
        else request.getfixturevalue(request.param)
    )


@pytest.fixture
def replicas(tmp_path: Path, store: str, ports: list[int]) -> Iterator[Replicas]:
    web, smtp, monitors, checks = ports
    channels = {
        "webhook": f"http://127.0.0.1:{web}/hook",
        "smtp": smtp,
        "sentry": f"http://{KEY}@127.0.0.1:{monitors}/42",
        "healthchecks": f"http://127.0.0.1:{checks}/{PING_KEY}",
    }
    started = Replicas(tmp_path, store, channels)
    for _ in range(3):
        started.start()
    try:
        yield started
    finally:
        started.stop()


def test_every_cause_arrives_once_by_its_id(replicas: Replicas, ports: list[int]) -> None:
    assert eventually(lambda: replicas.leader() is not None, 60)
    assert eventually(replicas.watched, 60)
    leader = replicas.leader()
    assert leader is not None
    replicas.trigger(JOBS[:6])
    os.kill(leader, signal.SIGKILL)  # while some have failed, some run, and nothing could be delivered
    replicas.trigger(JOBS[6:])
    assert eventually(lambda: replicas.leader() not in (leader, None))
    time.sleep(DOWN)  # how long the receivers are down is what this is about

    web, smtp, monitors, checks = ports
    hooks, sentry, health, box = (
        Receiver(port=web),
        FakeSentry(KEY, port=monitors),
        FakeHealthchecks(checks),
        Box(),
    )
    mail = Controller(box, hostname="127.0.0.1", port=smtp)
    began = time.monotonic()
    with running(hooks), running(sentry.receiver), running(health.receiver):
        mail.start()
        try:
            arrived = {
                "webhook": lambda: {each.json["job_id"] for each in hooks.requests},
                "e-mail": lambda: {str(each["Subject"]).split()[1] for each in box.mails},
                "Sentry": lambda: {each["monitor_slug"] for each in ended(sentry)},
                "Healthchecks": lambda: {ping[0].split("/")[1] for ping in health.pings if ping[1] == "fail"},
            }
            for channel, jobs in arrived.items():
                assert eventually(lambda jobs=jobs: jobs() == set(JOBS)), (channel, jobs(), replicas.logs())  # type: ignore[misc]
            print(f"all within {time.monotonic() - began:.1f} s after the receivers came up")
        finally:
            mail.stop()
    assert once_by_id([(each.json["id"], each.json["job_id"]) for each in hooks.requests])
    assert all(well_signed(each) for each in hooks.requests)
    assert once_by_id([(str(each["Fencepost-Id"]), str(each["Subject"]).split()[1]) for each in box.mails])
    assert len(ended(sentry)) == 10
    assert sentry.monitors.keys() == set(JOBS)
    assert once_by_id([(ping[2], ping[0]) for ping in health.pings if ping[1] == "fail"])
    print(len(hooks.requests), len(box.mails), len(sentry.receiver.requests), len(health.pings))


def ended(sentry: FakeSentry) -> list[dict[str, Any]]:
    return [each for each in sentry.check_ins.values() if each["status"] == "error"]


def once_by_id(pairs: list[tuple[str, str]]) -> bool:
    """Repeated deliveries have the same id, so ids and causes are one to one."""
    return len(set(pairs)) == len({id for id, _ in pairs}) == 10


def well_signed(request: Request) -> bool:
    return signed_by(request, "s" * 32, datetime.now(UTC), seconds=300)
