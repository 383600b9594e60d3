"""The planner: the leader expands calendars into fires ahead of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.replica.plan import plans_of
from fencepost.replica.service import Service
from fencepost.store.base import DueJobs, Plan

BATCH = 500
"""Jobs planned in one go."""
ROWS = 150
"""Rows written in one step, about: a longer one would keep others from claiming."""
SOONEST = 0.02
REFUSED = 0.2
"""Seconds until the next try, if no plan was written: another leader was faster, or the store's server has restarted
and may have forgotten what a backfill has run."""
LEFT_EVERY = 3 / 8
"""The part of a horizon between two checks of a follower. What is left unplanned at half a horizon is planned an eighth
of it ahead of time at the latest."""


class Planner(Service):
    shortest = 0.01

    _round_began: float | None = None
    """When this replica began to plan, on the steady clock, if not all is planned yet."""

    async def step(self) -> float | None:
        replica = self.replica
        horizon = replica.settings.horizon.total_seconds()
        if replica.term() is None:
            self._round_began = None
            return await self._plan_what_is_left(horizon)
        due = await replica.store.due_jobs(self._left_of(horizon), BATCH)
        plans = self._expand(due, horizon)
        if not plans:
            self._round_began = None
            return self._until_next(due, horizon)
        written = False
        for batch in batches(plans):
            written |= any(await replica.store.plan_fires(batch))
            replica.worker.wake()
        return 0.0 if written else REFUSED

    def _left_of(self, horizon: float) -> float:
        """A round plans what was within the horizon when it began. At a hundred fires a second there is always one
        that has come within it meanwhile, and the round would never end."""
        now = self.replica.clock.steady()
        if self._round_began is None:
            self._round_began = now
        return max(0.0, horizon - (now - self._round_began))

    async def _plan_what_is_left(self, horizon: float) -> float | None:
        """A healthy leader has planned a whole horizon ahead. A calendar that it has not planned up to half of that
        is one it cannot read: any replica that can plans it. If two do, the second plan is a no-op."""
        replica = self.replica
        if replica.draining or not replica.is_ready:
            return None
        due = await replica.store.due_jobs(horizon / 2, BATCH)
        for batch in batches(self._expand(due, horizon)):
            await replica.store.plan_fires(batch)
            replica.worker.wake()
        return LEFT_EVERY * horizon

    def _expand(self, due: DueJobs, horizon: float) -> list[Plan]:
        plans = []
        for record in due.jobs:
            try:
                plans += plans_of(record, due.now, horizon, due.gaps_of(record))
            except Exception as error:
                # One broken calendar must not keep the others from being planned.
                what = f"the calendar of job {record.id} cannot be expanded here"
                self.replica.errors.log(what, error)
        return plans

    def _until_next(self, due: DueJobs, horizon: float) -> float:
        """Half-way to the next unplanned fire: early enough to be ahead, late enough to plan many at once."""
        if due.soonest is None:
            return horizon / 2
        ahead = (due.soonest - due.now).total_seconds()
        return min(horizon / 2, max(SOONEST, ahead / 2))


def batches(plans: Sequence[Plan]) -> Iterator[list[Plan]]:
    batch: list[Plan] = []
    rows = 0
    for plan in plans:
        batch.append(plan)
        rows += len(plan.rows)
        if rows >= ROWS:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch
