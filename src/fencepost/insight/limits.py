"""Limits across jobs, as they stand: which jobs carry one, which runs have its places, who waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fencepost.insight.views.shapes import Shape, time
from fencepost.insight.visible import Sight, VisibleStore
from fencepost.model import FireRecord, JobRecord, State
from fencepost.model.limits import Limit, LimitState, Member, amount
from fencepost.store.base import FireQuery

MOST_RUNS = 10_000
NAMED = 3
"""Runs that a sentence names."""


@dataclass(frozen=True)
class LimitStanding:
    name: str
    members: Sequence[tuple[str, Limit]]
    """Jobs that carry it, and how."""
    running: Sequence[FireRecord]
    waiting: Sequence[str]
    """Jobs, in the order of their ids."""

    @property
    def sizes(self) -> list[str]:
        """As declared; where jobs differ the smallest of each kind holds."""
        return sorted({amount(limit.size, limit.per_seconds) for _, limit in self.members})

    @property
    def state(self) -> LimitState:
        return LimitState(tuple(Member(id, each.size, each.per_seconds) for id, each in self.members))

    @property
    def holds(self) -> str:
        """What is in force: `2`, `100/m`, or both."""
        size, rate = self.state.size, self.state.rate
        parts = [] if size is None else [str(size)]
        return " and ".join([*parts, *([amount(rate[0], int(rate[1].total_seconds()))] if rate else [])])

    def __str__(self) -> str:
        """What a fire that waits for it waits for."""
        size = self.state.size
        if size is None:
            return f"limit {self.name}: {self.holds} have been used"
        keys = list(dict.fromkeys(fire.key for fire in self.running))
        more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
        used = f" by {', '.join(keys[:NAMED])}{more}" if keys else ""
        return f"limit {self.name}: {len(self.running)} of {size} used{used}"


def limits_of(records: Iterable[JobRecord], running: Sequence[FireRecord]) -> list[LimitStanding]:
    """By name."""
    records = list(records)
    names = sorted({each.name for record in records for each in record.job.limits})
    found = []
    for name in names:
        members = [(record.id, each) for record in records for each in record.job.limits if each.name == name]
        counted = {id for id, each in members if each.per_seconds is None}
        waiting = [each.id for each in records if each.held_back is not None and each.held_back.limit == name]
        runs = [fire for fire in running if fire.job_id in counted]
        found.append(LimitStanding(name, members, runs, waiting))
    return found


async def read_limits(store: VisibleStore) -> list[LimitStanding]:
    """A limit is shared with jobs that the caller may not see: these count, without their names."""
    records = await store.whole.jobs()
    if not any(record.job.limits for record in records):
        return []
    running = await store.whole.find_fires(FireQuery(states=(State.RUNNING,), limit=MOST_RUNS))
    return [_seen(standing, store.sight) for standing in limits_of(records, running)]


def _seen(standing: LimitStanding, sight: Sight) -> LimitStanding:
    members = [(sight.name(id), limit) for id, limit in standing.members]
    return LimitStanding(
        standing.name, members, [*map(sight.fire, standing.running)], [*map(sight.name, standing.waiting)]
    )


async def waits_for(store: VisibleStore, name: str) -> str:
    """A sentence on why a fire waits."""
    standing = next((each for each in await read_limits(store) if each.name == name), None)
    return f"It waits for {standing}." if standing is not None else f"It waits for limit {name}."


def limit_shape(standing: LimitStanding) -> Shape:
    return {
        "name": standing.name,
        "holds": standing.holds,
        "declared": [
            {"job_id": id, "size": amount(limit.size, limit.per_seconds), "full": limit.full}
            for id, limit in standing.members
        ],
        "running": [
            {"key": fire.key, "replica": fire.replica, "started_at": time(fire.started_at)}
            for fire in standing.running
        ],
        "waiting": list(standing.waiting),
    }
