"""The deploy: every instance is replaced by a new one while clients ask and jobs run."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import psycopg

from rolling_deploy.account import Account, reckon
from rolling_deploy.balancer import Balancer
from rolling_deploy.database import create_tables
from rolling_deploy.instances import Instance, Instances
from rolling_deploy.traffic import Traffic

ACTIONS = 5
ACTION_EVERY = "1 second"
UNDER_LOAD = 0.5
"""Seconds of load before the first instance is replaced, and after the last."""
SHORT = {
    "FENCEPOST_HEARTBEAT": "0.5",
    "FENCEPOST_LEADER_TTL": "2",
    "FENCEPOST_RUN_TTL": "2",
    "FENCEPOST_READY_DELAY": "2",
    "FENCEPOST_DRAIN_TIMEOUT": "1",
    "EXPORT_EVERY": "4",
}
"""So that there is something to see within seconds. What is set in the environment wins."""


@dataclass(frozen=True)
class Result:
    traffic: Traffic
    account: Account
    refusals: tuple[bytes, ...]
    """What the readiness probe of each instance said when it first was not ready."""

    @property
    def clean(self) -> bool:
        return self.account.clean and not self.traffic.failures


@dataclass(frozen=True)
class Deploy:
    url: str
    """Of an empty database."""
    folder: Path
    instances: int = 3
    workers: int = 1
    clients: int = 8
    by: signal.Signals = signal.SIGTERM

    async def run(self) -> Result:
        await self._prepare()
        env = {name: os.environ.get(name, value) for name, value in SHORT.items()}
        env |= {"DATABASE_URL": self.url}
        async with Balancer() as balancer:
            with Instances(self.folder, balancer, env, self.workers) as running:
                first = await asyncio.gather(*(running.start() for _ in range(self.instances)))
                print(f"{self.instances} instances are ready.", flush=True)
                async with Traffic(balancer.url, self.clients, ACTIONS) as traffic:
                    await asyncio.sleep(UNDER_LOAD)
                    await self._replace(first, running)
                    await asyncio.sleep(UNDER_LOAD)
                await asyncio.gather(*(running.end(each) for each in running.all[self.instances :]))
        return Result(traffic, await reckon(self.url), tuple(old.backend.refusal for old in first))

    async def _replace(self, first: list[Instance], running: Instances) -> None:
        """Each leaves when another is ready in its place. Meanwhile the next one may start."""

        async def leave(old: Instance, new: Instance) -> None:
            took = await running.end(old, self.by)
            print(f"{old.name} → {new.name}: ended {took:.1f} s after {self.by.name}.", flush=True)

        async with asyncio.TaskGroup() as leaving:
            for old in first:
                leaving.create_task(leave(old, await running.start()))

    async def _prepare(self) -> None:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            await create_tables(connection)
            await connection.execute(
                "insert into actions (id, title, every) select n, 'Action ' || n, %s::interval"
                " from generate_series(1, %s) n",
                (ACTION_EVERY, ACTIONS),
            )
