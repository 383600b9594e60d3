"""A real process: a thousand failures in a row are one message, and a receiver that never takes one costs no memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.model import State
from fencepost.store.base import FireQuery, Store
from fencepost.store.outbox import OutboxQuery
from fencepost.store.rules.outbox import MOST_WAITING
from tests.notify.receivers import Receiver, Reply, running
from tests.notify.test_cluster import Replicas, eventually

FAILURES = 1_000
MOST_GROWTH_MB = 8.0
"""Of the process while thousands of causes arise that its receiver does not take."""

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]


@contextmanager
def a_replica(folder: Path, scene: dict[str, Any]) -> Iterator[Replicas]:
    replicas = Replicas(folder, f"sqlite:///{folder}/jobs.db", scene, app="failing")
    replicas.start()
    try:
        yield replicas
    finally:
        replicas.stop()


def test_a_thousand_failures_in_a_row_are_one_message_and_one_recovery(tmp_path: Path) -> None:
    hooks = Receiver()
    with running(hooks):
        scene = {
            "scene": "in a row",
            "failures": FAILURES,
            "count": str(tmp_path / "count"),
            "webhook": f"http://127.0.0.1:{hooks.port}/hook",
        }
        with a_replica(tmp_path, scene) as replicas:
            assert eventually(lambda: len(hooks.requests) >= 2, 300), replicas.logs()

            async def failures(store: Store) -> int:
                return len(await store.find_fires(FireQuery(states=(State.FAILED,), limit=2 * FAILURES)))

            assert replicas.with_store(failures) == FAILURES
    told = [(each.json["cause"], each.json["id"]) for each in hooks.requests]
    assert [cause for cause, _ in dict.fromkeys(told)] == ["failed", "recovered"]


def test_a_receiver_that_fails_for_ever_costs_bounded_memory_and_is_shown(tmp_path: Path) -> None:
    hooks = Receiver()
    hooks.answer = lambda _: Reply(500)
    with running(hooks):
        scene = {"scene": "each run", "webhook": f"http://127.0.0.1:{hooks.port}/hook"}
        with a_replica(tmp_path, scene) as replicas:
            # From here on the outbox is full, and all that a process needs has been allocated.
            assert eventually(lambda: joined(replicas) > 1_000, 300), replicas.logs()
            before = resident_mb(replicas.processes[0].pid)
            assert eventually(lambda: joined(replicas) > 6_000, 300), replicas.logs()
            growth = resident_mb(replicas.processes[0].pid) - before
            print(
                f"from {before:.1f} MB on, {growth:+.1f} MB over 5,000 causes, {len(hooks.requests)} requests"
            )
            assert growth < MOST_GROWTH_MB
            words = [sys.executable, "-m", "fencepost", "doctor", "--store", replicas.store, "--json"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            said = json.dumps(json.loads(done.stdout))
    assert done.returncode == 1
    assert "channel hook has failed since" in said
    assert f"more than {MOST_WAITING} notices wait" in said


def joined(replicas: Replicas) -> int:
    """Causes for which there was no room of their own."""

    async def ask(store: Store) -> int:
        found = (await store.notices.outbox(OutboxQuery("hook", after="waits/hook/9", limit=1))).notices
        return found[0].notice.count if found else 0

    return replicas.with_store(ask)


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("a process without memory")
