"""Who is up next: a heap of (moment, id) that forgets what was rescheduled. Costs follow what is due."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import datetime

Wanted = Callable[[str], bool]


class Agenda:
    """One order: the earliest first."""

    def __init__(self) -> None:
        self._when: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def set(self, id: str, when: datetime | None) -> None:
        if when is None:
            self._when.pop(id, None)
        elif self._when.get(id) != when:
            self._when[id] = when
            heapq.heappush(self._heap, (when, id))

    def when(self, id: str) -> datetime | None:
        return self._when.get(id)

    def soonest(self, wanted: Wanted | None = None) -> datetime | None:
        found = self._first(1, None, wanted)
        return self._when[found[0]] if found else None

    def upcoming(self, limit: int, walk: int, wanted: Wanted) -> list[tuple[datetime, str]] | None:
        """The first `limit` of those wanted. None: they are not among the first `walk` of all."""
        found, walked = self._walk(limit, None, wanted, walk)
        if walked == walk and len(found) < limit:
            return None
        return [(self._when[id], id) for id in found]

    def due(self, now: datetime, limit: int, wanted: Wanted | None = None) -> list[str]:
        """Up to `limit` ids that are due, the earliest first. They stay until set again."""
        return self._first(limit, now, wanted)

    def _first(self, limit: int, now: datetime | None, wanted: Wanted | None) -> list[str]:
        return self._walk(limit, now, wanted, len(self._when))[0]

    def _walk(
        self, limit: int, now: datetime | None, wanted: Wanted | None, most: int
    ) -> tuple[list[str], int]:
        """What is found among the first `most`, and how many were looked at."""
        heap, found, seen = self._heap, list[str](), dict[str, datetime]()
        while heap and len(found) < limit and len(seen) < most and (now is None or heap[0][0] <= now):
            when, id = heapq.heappop(heap)
            # What was set anew is stale here; what was set back to an earlier moment is on the heap twice.
            if self._when.get(id) == when and id not in seen:
                seen[id] = when
                if wanted is None or wanted(id):
                    found.append(id)
        for id, when in seen.items():
            heapq.heappush(heap, (when, id))
        return found, len(seen)


class Turns:
    """An agenda for each priority: of what is due the highest comes first."""

    def __init__(self) -> None:
        self._agendas = {0: Agenda()}
        self._priorities: dict[str, int] = {}
        """Of those that do not have the priority 0."""

    def set(self, id: str, when: datetime | None, priority: int | None = None) -> None:
        """Without a priority: it keeps the one it has."""
        before = self._priorities.get(id, 0)
        if priority is not None and priority != before:
            self._agendas[before].set(id, None)
            before = priority
            self._priorities[id] = priority
            if not priority:
                del self._priorities[id]
        self._agendas.setdefault(before, Agenda()).set(id, when)

    def when(self, id: str) -> datetime | None:
        return self._agendas[self._priorities.get(id, 0)].when(id)

    def soonest(self, wanted: Wanted | None = None) -> datetime | None:
        moments = (agenda.soonest(wanted) for agenda in self._agendas.values())
        return min((moment for moment in moments if moment is not None), default=None)

    def upcoming(self, limit: int, walk: int, wanted: Wanted) -> list[tuple[datetime, str]] | None:
        """The same, whatever their priority."""
        found: list[tuple[datetime, str]] = []
        for agenda in self._agendas.values():
            some = agenda.upcoming(limit, walk, wanted)
            if some is None:
                return None
            found += some
        return sorted(found)[:limit]

    def due(self, now: datetime, limit: int, wanted: Wanted | None = None) -> list[str]:
        found: list[str] = []
        for priority in sorted(self._agendas, reverse=True):
            found += self._agendas[priority].due(now, limit - len(found), wanted)
        return found
