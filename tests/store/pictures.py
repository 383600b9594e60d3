"""A ledger with a busy job, a failing one, a paused one and an hourly one; and who reads it."""

from __future__ import annotations

import time

from fencepost.insight.board import Board, Reading, read_all
from fencepost.insight.cluster import Cluster, cluster_of
from fencepost.insight.pictures.kept import KeptPictures
from fencepost.model import State
from fencepost.model.triggers import every
from fencepost.store.base import Settle, Store
from fencepost.testing.conformance import Harness

ROUNDS = 10
"""Of ten seconds, in each of which the busy job fires ten times."""
FAILING = 17
"""Each of the busy job's fires whose number can be divided by this fails."""


class Looking:
    """As much of a `Reader` as the pictures use."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.kept = KeptPictures()
        self.board = Board()

    async def cluster(self) -> Cluster:
        return await cluster_of(self.store)

    async def recent(self) -> Reading:
        return await read_all(self.store, self.board, await self.cluster())

    def steady(self) -> float:
        return time.monotonic()


async def a_ledger(harness: Harness) -> Looking:
    await harness.elect("a")
    await harness.define("busy", every(seconds=1), overlap="allow(20)")
    await harness.define("broken", every(seconds=10))
    await harness.define("hourly", every(hours=1))
    await harness.define("paused", every(seconds=5))
    await harness.define("never")
    await harness.pause("paused")
    number = 0
    for _ in range(ROUNDS):
        await harness.plan()
        await harness.elapse(10)
        await harness.plan()
        fires = sorted(await harness.claims("a", 20), key=lambda fire: fire.due_at)
        updates = []
        for fire in fires:
            number += fire.job_id == "busy"
            fails = fire.job_id == "broken" or number % FAILING == 0
            state = State.FAILED if fails else State.SUCCEEDED
            error = f"Traceback:\nValueError: number {number}" if fails else None
            updates.append(Settle(fire.key, fire.token, state, error=error, output="said something"))
        assert all((await harness.store.update_claims("a", updates)).accepted)
    return Looking(harness.store)
