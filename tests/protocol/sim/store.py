"""The store of a simulation: the reference model, which tells of every change of a fire and can lose data."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast

from fencepost.model import FireRecord, JobRecord
from fencepost.store.agenda import Agenda
from fencepost.store.state import StoreState
from fencepost.store.unreadable import Kind, Unreadable

Told = Callable[[FireRecord | None, FireRecord | None], None]


class SimulatedStore(StoreState):
    orphaned_after = timedelta(seconds=10)
    """An hour is longer than a simulation."""

    def __init__(self) -> None:
        super().__init__()
        self.on_row: Told = lambda before, after: None
        self.damaged: dict[tuple[str, str], Unreadable] = {}
        """What the fault has left unreadable, whatever was written since."""

    def put_fire(self, fire: FireRecord) -> None:
        before = self.fires.get(fire.key)
        super().put_fire(fire)
        self.on_row(before, fire)

    def drop_fire(self, fire: FireRecord) -> None:
        super().drop_fire(fire)
        self.on_row(fire, None)

    def damage(self, kind: str, key: str) -> None:
        """Make a row unreadable."""
        why, content = "drawn by the seed", self._content(kind, key)
        job_id = key if kind == "job" else getattr(content, "job_id", None)
        holds = kind == "job" or (kind == "fire" and not content.state.final)
        found: dict[str, Any] = {"targets": content.targets} if kind == "replica" else {}
        if kind == "fire":
            found["replica"] = content.replica
        row = Unreadable(cast("Kind", kind), key, why, job_id, holds)
        self.damaged[kind, key] = row
        self.set_aside(row, content, found)

    def _content(self, kind: str, key: str) -> Any:
        rows: dict[str, dict[str, Any]] = {
            "job": dict(self.jobs_by_id),
            "fire": dict(self.fires),
            "replica": dict(self.replicas),
        }
        return rows[kind][key]

    def repair(self, kind: str, key: str) -> None:
        """As it was, unless it was written anew."""
        self.damaged.pop((kind, key), None)
        broken = self.broken.pop((kind, key), None)
        if broken is None:
            return
        if kind == "job":
            self.jobs_by_id[key] = broken.content
        elif kind == "fire":
            super().put_fire(broken.content)
        else:
            self.replicas[key] = broken.content

    def kept_job(self, id: str) -> JobRecord:
        """Whether it can be read or not."""
        broken = self.broken.get(("job", id))
        return self.jobs_by_id[id] if broken is None else cast("JobRecord", broken.content)

    def jobs_aside(self) -> set[str]:
        return {row.job_id for row in self.damaged.values() if row.holds and row.job_id}

    def begin_anew(self, job_id: str) -> None:
        """The job was removed: what could not be read of it holds nothing any more."""
        self.damaged = {
            where: row for where, row in self.damaged.items() if row.job_id != job_id or not row.holds
        }

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
