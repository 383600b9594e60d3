"""The inspector: reports unreadable rows, once each, and tries to read them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fencepost.replica.service import Service
from fencepost.store.rereading import READ_AGAIN, read_again
from fencepost.store.unreadable import Unreadable

if TYPE_CHECKING:
    from fencepost.replica.replica import Replica

Reported = dict[tuple[str, str], Unreadable]


class Inspector(Service):
    shortest = 0.3

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._reported: Reported = {}
        self._read_at: float | None = None

    async def step(self) -> float | None:
        registry, now = self.replica.store.unreadable, self.replica.clock.steady()
        if self._read_at is None:
            self._read_at = now
        if registry and now - self._read_at >= READ_AGAIN:
            self._read_at = now
            await read_again(self.replica.store)  # what can be read is claimed and planned again
        self._report()
        return (
            READ_AGAIN if registry else None
        )  # the heartbeat loop wakes it when there is something to report

    @property
    def has_news(self) -> bool:
        return bool(self.replica.store.unreadable) or bool(self._reported)

    def _report(self) -> None:
        found: Reported = {(row.kind, row.key): row for row in self.replica.store.unreadable.rows}
        for where, row in found.items():
            if where not in self._reported:
                self.replica.emit("row.unreadable", detail=f"{row.summary}; {row.remedy}")
        for where, row in self._reported.items():
            if where not in found:
                self.replica.emit("row.readable", detail=f"{row.kind} {row.key}")
        self._reported = found
