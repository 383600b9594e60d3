"""The store of a simulation: the reference model, which tells of every change of a fire and can lose data."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from fencepost.model import FireRecord
from fencepost.store.agenda import Agenda
from fencepost.store.state import StoreState

Told = Callable[[FireRecord | None, FireRecord | None], None]


class SimulatedStore(StoreState):
    orphaned_after = timedelta(seconds=10)
    """An hour is longer than a simulation."""

    def __init__(self) -> None:
        super().__init__()
        self.on_row: Told = lambda before, after: None

    def put_fire(self, fire: FireRecord) -> None:
        before = self.fires.get(fire.key)
        super().put_fire(fire)
        self.on_row(before, fire)

    def drop_fire(self, fire: FireRecord) -> None:
        super().drop_fire(fire)
        self.on_row(fire, None)

    def look_at(self, job_id: str) -> datetime | None:
        """When its fires are next to be decided."""
        return self._looks._when.get(job_id)

    def snapshot(self) -> dict[str, Any]:
        return {name: _copied(value) for name, value in vars(self).items() if name != "on_row"}

    def restore(self, snapshot: dict[str, Any]) -> None:
        vars(self).pop("leader", None)
        vars(self).update(_copied(snapshot))


def _copied(value: Any) -> Any:
    """Containers anew; what they hold is frozen."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(value)
    if isinstance(value, Agenda):
        agenda = Agenda()
        vars(agenda).update(_copied(vars(value)))
        return agenda
    return value
