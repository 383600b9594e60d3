"""Changes, as the log has them, made to a state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fencepost.errors import ConfigurationError
from fencepost.model import (
    Era,
    FireRecord,
    JobEvent,
    JobRecord,
    Json,
    Lease,
    ReplicaRecord,
    State,
    changed,
    job_of,
)
from fencepost.store.codec import from_json, moment, to_json, when
from fencepost.store.file.state import Change, LoggedState, hints_of
from fencepost.store.rows import TargetRecord
from fencepost.store.unreadable import (
    DAMAGE,
    Kind,
    Unreadable,
    checked_fire,
    checked_job,
    reason_of,
    salvaged,
)

Row = TypeVar("Row")


class Redo:
    def __init__(self, state: LoggedState) -> None:
        self._state = state
        self._steps: dict[str, Callable[..., None]] = {
            "job": self._job,
            "event": self._event,
            "events": self._events,
            "target": self._target,
            "fire": self._fire,
            "no fire": self._no_fire,
            "replica": self._replica,
            "no replica": state.replicas.redo_drop,
            "entry": state.entries.redo,
            "no entry": state.entries.redo_drop,
            "leader": self._leader,
            "prune": self._prune,
            "boot": lambda id, boot: setattr(state, "boot", boot),
        }

    def redo(self, change: Change) -> None:
        kind, id, *rest = change
        if kind not in self._steps:
            raise ConfigurationError(
                f"it holds a {kind!r}, which this version does not know: upgrade Fencepost"
            )
        self._steps[kind](id, *rest)

    def _job(self, id: str, new: Json, decide_at: int | None, plan_at: int | None) -> None:
        jobs = self._state.jobs
        jobs.moments[id] = [decide_at, plan_at]
        before = jobs.rows.get(id)
        record = self._read("job", id, JobRecord, before, new, lambda row: checked_job(row, id), id)
        if record is not None:
            jobs.redo(record, when(decide_at), when(plan_at))

    def _event(self, id: str, event: Json) -> None:
        key = f"{id} {len(self._state.jobs.events_by_job.get(id, ()))}"
        found = self._read("event", key, JobEvent, None, event, job_id=id)
        if found is not None:
            self._state.jobs.redo_event(found)

    def _events(self, id: str, events: Json) -> None:
        self._state.jobs.events_by_job[id] = []
        for event in events:
            self._event(id, event)

    def _target(self, name: str, target: Json) -> None:
        found = self._read("target", name, TargetRecord, None, target)
        if found is not None:
            self._state.targets.redo(found)

    def _fire(self, key: str, new: Json) -> None:
        before = self._state.fires.rows.get(key)
        fire = self._read("fire", key, FireRecord, before, new, checked_fire, job_of(key))
        if fire is not None:
            self._state.fires.redo(fire)

    def _no_fire(self, key: str) -> None:
        if key in self._state.fires.rows:
            self._state.fires.forget(key)
        self._state.broken.mended("fire", key)

    def _replica(self, id: str, new: Json) -> None:
        before = self._state.replicas.rows.get(id)
        replica = self._read("replica", id, ReplicaRecord, before, new)
        if replica is not None:
            self._state.replicas.redo(replica)

    def _leader(self, id: str, lease: Json) -> None:
        self._state.redo_leader(self._read("lease", "leader", Lease, None, lease))

    def _prune(self, id: str, before: int) -> None:
        self._state.fires.redo_prune(moment(before))

    def _read(
        self,
        kind: Kind,
        key: str,
        row: Any,
        before: Any,
        new: Json,
        check: Callable[[Any], Any] = lambda row: row,
        job_id: str | None = None,
    ) -> Any:
        """The row as the log has changed it. None: it cannot be read, and is kept as it is. Such a row is changed
        as JSON, until it is written as a whole, or what is wrong with it."""
        broken = self._state.broken.rows.get((kind, key))
        kept = None if broken is None or broken.row.foreign else broken.content
        try:
            return check(_patched(row, before, new) if kept is None else _made_whole(row, kept, new))
        except ConfigurationError:
            raise
        except DAMAGE as error:
            why = reason_of(error)
        content = _joined(to_json(before) if before is not None else kept, new)
        holds = kind == "job" or (kind == "fire" and _is_live(content))
        self._state.set_aside(Unreadable(kind, key, why, job_id, holds), content, _salvaged(row, content))
        return None


def _patched(kind: Any, before: Row | None, new: dict[str, Json]) -> Row:
    if before is None:
        row: Row = from_json(kind, new)
        return row
    hints = hints_of(kind)
    if unknown := new.keys() - hints.keys():
        raise ConfigurationError(
            f"it holds {sorted(unknown)}, which this version does not know: upgrade Fencepost"
        )
    return changed(before, **{name: from_json(hints[name], value) for name, value in new.items()})


def _made_whole(kind: Any, kept: Json, new: Json) -> Any:
    try:
        return from_json(kind, new)
    except DAMAGE:
        return from_json(kind, _joined(kept, new))


def _joined(before: Json, new: Json) -> Json:
    return {**before, **new} if isinstance(before, dict) and isinstance(new, dict) else new


def _is_live(fire: Json) -> bool:
    if not isinstance(fire, dict) or fire.get("finished_at") is None:
        return True
    return fire.get("state") not in {state.value for state in State if state.final}


def _salvaged(kind: Any, content: Json) -> dict[str, Any]:
    if not isinstance(content, dict):
        return {}
    if kind is JobRecord:
        content = {"token": 0, "decided_through": None, **content}
    elif kind is Lease and isinstance(content.get("era", {}), dict):
        content = {**to_json(Era()), "lost_through": None, "term": 0, **content.get("era", {}), **content}
    hints = {**hints_of(Era), **hints_of(kind)} if kind is Lease else hints_of(kind)
    return salvaged(
        {name: partial(from_json, hints[name], content[name]) for name in hints if name in content}
    )
