"""The store of a simulation: the reference model, which tells of every change of a fire and can lose data."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast

from fencepost.model import FireRecord, JobRecord
from fencepost.store.agenda import Agenda, Turns
from fencepost.store.state import StoreState
from fencepost.store.tables import BrokenRows, FireTable, OpenFires
from fencepost.store.unreadable import Kind, Unreadable

StreamEvent = Callable[[FireRecord | None, FireRecord | None], None]


class SimulatedFires(FireTable):
    def __init__(self, broken: BrokenRows) -> None:
        super().__init__(broken)
        self.on_row: StreamEvent = lambda before, after: None

    def put(self, fire: FireRecord) -> None:
        before = self.rows.get(fire.key)
        super().put(fire)
        self.on_row(before, fire)

    def restore(self, fire: FireRecord) -> None:
        super().put(fire)

    def drop(self, fire: FireRecord) -> None:
        super().drop(fire)
        self.on_row(fire, None)


class SimulatedStore(StoreState):
    fires: SimulatedFires
    orphaned_after = timedelta(seconds=10)
    """An hour is longer than a simulation."""

    def __init__(self) -> None:
        super().__init__()
        self.fires = SimulatedFires(self.broken)
        self.damaged: dict[tuple[str, str], Unreadable] = {}
        """What the fault has left unreadable, whatever was written since."""

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
            "job": dict(self.jobs.rows),
            "fire": dict(self.fires.rows),
            "replica": dict(self.replicas.rows),
        }
        return rows[kind][key]

    def repair(self, kind: str, key: str) -> None:
        """As it was, unless it was written anew."""
        self.damaged.pop((kind, key), None)
        broken = self.broken.rows.pop((kind, key), None)
        if broken is None:
            return
        if kind == "job":
            self.jobs.rows[key] = broken.content
        elif kind == "fire":
            self.fires.restore(broken.content)
        else:
            self.replicas.rows[key] = broken.content

    def kept_job(self, id: str) -> JobRecord:
        """Whether it can be read or not."""
        broken = self.broken.rows.get(("job", id))
        return self.jobs.rows[id] if broken is None else cast("JobRecord", broken.content)

    def jobs_aside(self) -> set[str]:
        return {row.job_id for row in self.damaged.values() if row.holds and row.job_id}

    def begin_anew(self, job_id: str) -> None:
        """The job was removed: what could not be read of it holds nothing any more."""
        self.damaged = {
            where: row for where, row in self.damaged.items() if row.job_id != job_id or not row.holds
        }

    def decide_at(self, job_id: str) -> datetime | None:
        """When its fires are next to be decided."""
        return self.jobs.decisions.when(job_id)

    def snapshot(self) -> Snapshot:
        """Of everything that is stored: the tables, the lease, and what is damaged."""
        return {
            name: {each: _copied(vars(part)[each]) for each in CONTENTS[name]} for name, part in self._parts()
        }

    def restore(self, snapshot: Snapshot) -> None:
        for name, part in self._parts():
            vars(part).update(_copied(snapshot[name]))

    def _parts(self) -> list[tuple[str, Any]]:
        return [(name, getattr(self, name) if name else self) for name in CONTENTS]


Snapshot = dict[str, dict[str, Any]]

CONTENTS = {
    "": ("_leader", "damaged"),
    "jobs": ("rows", "events_by_job", "decisions", "plans"),
    "targets": ("rows",),
    "fires": ("rows", "_open", "_active", "_running", "_final"),
    "replicas": ("rows",),
    "entries": ("rows", "_keys"),
    "broken": ("rows",),
}
"""By part: its attributes that hold what is stored."""


def _copied(value: Any) -> Any:
    """Containers anew; what they hold is frozen."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(value)
    if isinstance(value, Agenda | Turns | OpenFires):
        made = type(value)()
        vars(made).update(_copied(vars(value)))
        return made
    return value
