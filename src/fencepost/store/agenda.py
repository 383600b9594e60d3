"""Who is up next: a heap of (moment, id) that forgets what was rescheduled. Costs follow what is due."""

from __future__ import annotations

import heapq
from datetime import datetime


class Agenda:
    def __init__(self) -> None:
        self._when: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def set(self, id: str, when: datetime | None) -> None:
        if when is None:
            self._when.pop(id, None)
        elif self._when.get(id) != when:
            self._when[id] = when
            heapq.heappush(self._heap, (when, id))

    def soonest(self) -> datetime | None:
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, now: datetime, limit: int) -> list[tuple[datetime, str]]:
        """Up to `limit` entries that are due, the earliest first. They stay until set again."""
        found: dict[str, datetime] = {}
        while len(found) < limit:
            self._drop_stale()
            if not self._heap or self._heap[0][0] > now:
                break
            when, id = heapq.heappop(self._heap)
            found[id] = when  # what was set back to an earlier moment is on the heap twice
        for id, when in found.items():
            heapq.heappush(self._heap, (when, id))
        return [(when, id) for id, when in found.items()]

    def _drop_stale(self) -> None:
        while self._heap and self._when.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
