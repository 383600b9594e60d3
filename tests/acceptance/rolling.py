"""`examples/rolling_deploy` as real processes on a real PostgreSQL, and what its tables say."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx2
import psycopg

from fencepost.model import FireRecord, State
from fencepost.store.base import FireQuery, NewFire
from tests.cluster.harness import Reader
from tests.web.serving import ROOT, STARTING, ServerProcess, client_of, eventually, server_process

EXAMPLE = ROOT / "examples" / "rolling_deploy"
UVICORN = ["uvicorn", "rolling_deploy.app:app", "--app-dir", str(EXAMPLE), "--port", "{port}"]
UVICORN += ["--log-level", "warning"]
SHORT = {"heartbeat": 0.4, "leader_ttl": 1.5, "run_ttl": 1.5, "ready_delay": 0.5, "drain_timeout": 1.5}
LEAVING = {"ready": False, "reason": "shutting_down"}


def application(
    url: str, folder: Path, *, workers: int = 1, more: dict[str, str] | None = None, **settings: Any
) -> AbstractContextManager[ServerProcess]:
    """One instance, or the parent of several workers. It has a folder of its own."""
    folder.mkdir()
    env = {"DATABASE_URL": url, "DATABASE_PATIENCE": "1", "EXPORT_STEPS": "10", **(more or {})}
    command = [*UVICORN, "--workers", str(workers)] if workers > 1 else UVICORN
    return server_process(command, folder, env, **{**SHORT, **settings})


def ready(process: ServerProcess) -> bool:
    assert process.popen.poll() is None, process.told()
    try:
        with client_of(process.url) as client:
            return client.get("/health/ready").status_code == 200
    except httpx2.HTTPError:
        return False


def all_ready(*processes: ServerProcess) -> None:
    eventually(lambda: all(ready(process) for process in processes), STARTING)


class Books:
    """What the jobs and requests of the example have done, by its own tables and by the ledger."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True)
        self.reader = Reader(url)

    def __enter__(self) -> Books:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self.reader.close()

    def ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(query.encode(), values or None).fetchall()

    def add_action(self, number: int, every: str = "1 hour") -> None:
        self._connection.execute(
            "insert into actions (id, title, every) values (%s, 'an action', %s)", (number, every)
        )

    def ticks(self) -> dict[str, list[int]]:
        """Fire → the processes that ran it."""
        found: dict[str, list[int]] = {}
        for fire, pid in self.ask("select fire, pid from ticks order by fire"):
            found.setdefault(fire, []).append(pid)
        return found

    def steps(self, fire: str) -> list[tuple[int, int]]:
        """Step and process, in the order in which they were done."""
        return [(step, pid) for step, pid in self.ask("select step, pid from steps where fire = %s", fire)]

    def messages(self) -> list[int]:
        return [number for (number,) in self.ask("select action_id from messages order by action_id")]

    def leader(self) -> int:
        """The process that leads; 0: none does."""
        roster = self.reader.roster()
        return next((each.pid for each in roster.replicas if each.id == roster.leader.holder), 0)

    def pids(self) -> set[int]:
        return {replica.pid for replica in self.reader.roster().replicas}

    def start_export(self, name: str = "now") -> str:
        """As a person would, by hand; returns when it runs."""
        key = f"export!{name}"
        assert self.reader.ask(lambda store: store.add_fire(NewFire(key, "export"))).outcome == "added"
        eventually(lambda: self.steps(key))
        return key

    def fire(self, key: str) -> FireRecord:
        found = self.reader.fire(key)
        assert found is not None
        return found

    def ended(self, key: str) -> FireRecord:
        eventually(lambda: self.fire(key).state.final)
        return self.fire(key)

    def all_once(self) -> None:
        """No tick twice, and none of those left out that the ledger calls a success."""
        query = FireQuery(job_id="tick", states=(State.SUCCEEDED,), limit=1000)
        succeeded = {fire.key for fire in self.reader.ask(lambda store: store.find_fires(query))}
        ticks = self.ticks()
        assert {fire: pids for fire, pids in ticks.items() if len(pids) > 1} == {}
        assert succeeded <= ticks.keys()
