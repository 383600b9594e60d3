"""The last outcomes of each job of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.insight.board import BoardEntry
from fencepost.insight.pictures.trends import took_by
from fencepost.model import FireRecord, JobRecord
from fencepost.model.triggers import EARLIEST
from fencepost.store.base import FireQuery, Store
from fencepost.store.counting import SlimQuery

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader

LENGTH = 30
MOST_JOBS = 200
MOST_KEPT = 2_000


@dataclass(frozen=True, slots=True)
class StripOutcome:
    key: str
    state: str
    reason: str | None
    due_at: datetime
    took_seconds: float | None
    count: int
    """Fires that the row stands for."""


Strip = tuple[StripOutcome, ...]
"""Oldest first, at most 30. Empty: no fire was due yet."""


class Strips:
    """Belongs to the reading thread."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[JobRecord, Strip]] = {}

    async def of(self, store: Store, entry: BoardEntry, now: datetime) -> Strip:
        """A job's record changes with each claim, each end of a run and each decision: as long as it stands, nothing
        has happened."""
        known = self._kept.get(entry.id)
        if known is not None and known[0] is entry.record and not entry.active:
            return known[1]
        rows = await _newest(store, entry, now)
        strip = tuple(_outcome(fire, now) for fire in reversed(rows))
        if entry.record is not None and all(fire.state.final for fire in rows):
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[entry.id] = entry.record, strip
        return strip


async def _newest(store: Store, entry: BoardEntry, now: datetime) -> Sequence[FireRecord]:
    until = now + datetime.resolution
    if store.counting is None:
        return await store.find_fires(FireQuery(job_id=entry.id, until=until, limit=LENGTH))
    final = await store.counting.slim_fires(SlimQuery(EARLIEST, until, LENGTH, entry.id))
    rows = {fire.key: fire for fire in (*final, *entry.active)}
    return sorted(rows.values(), key=lambda fire: fire.due_at, reverse=True)[:LENGTH]


async def strips(reader: Reader, store: Store, entries: Sequence[BoardEntry]) -> dict[str, Strip]:
    """By job."""
    now = (await reader.cluster()).now
    return {entry.id: await reader.kept.strips.of(store, entry, now) for entry in entries[:MOST_JOBS]}


def _outcome(fire: FireRecord, now: datetime) -> StripOutcome:
    return StripOutcome(fire.key, fire.state.value, fire.reason, fire.due_at, took_by(fire, now), fire.count)
