"""How a backend decodes its rows: what cannot be read is noted, and passed over (`unreadable.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobEvent, JobRecord, Lease, ReplicaRecord
from fencepost.store.rows import TargetRecord
from fencepost.store.tables import blank_fire
from fencepost.store.texts import read
from fencepost.store.unreadable import (
    UnreadableRows,
    checked_job,
    salvaged,
    salvaged_lease,
    salvaged_presence,
)

Fields = Callable[[], Mapping[str, Callable[[], Any]]]
"""How to read each field of a row by itself, if the whole cannot be read."""


@dataclass(frozen=True, slots=True)
class BrokenFire:
    """What is known of a fire whose row cannot be read."""

    job_id: str
    live: bool
    replica: str | None


class RowReader:
    """For the length of one unit of work."""

    def __init__(self, registry: UnreadableRows) -> None:
        """`registry`: of the rows that this process could not read, kept from step to step."""
        self.registry = registry
        self.at = Moment(datetime.fromtimestamp(0, UTC), 0.0)
        """The moment of the step."""
        self.fires: dict[str, BrokenFire] = {}
        self.presences: dict[str, ReplicaRecord] = {}
        self._decoded: dict[str, tuple[tuple[Any, ...], FireRecord]] = {}

    def job(self, id: str, decode: Callable[..., JobRecord], *args: Any) -> JobRecord | None:
        def checked() -> JobRecord:
            return checked_job(decode(*args), id)

        record = self.registry.read("job", id, checked, job_id=id, holds=True)
        if record is not None:
            self.registry.note_foreign(record)
        return record

    def fire(
        self, key: str, broken: BrokenFire, decode: Callable[..., FireRecord], *args: Any
    ) -> FireRecord | None:
        """`broken`: what is known if it cannot be read. A step meets many a row twice: it is decoded once."""
        known = self._decoded.get(key)
        if known is not None and known[0] == args:
            return known[1]
        fire = self.registry.read("fire", key, decode, *args, job_id=broken.job_id, holds=broken.live)
        if fire is None:
            self.fires[key] = broken
        else:
            self._decoded[key] = args, fire
        return fire

    def event(self, job_id: str, number: object, row: str) -> JobEvent | None:
        return self.registry.read("event", f"{job_id} {number}", read, JobEvent, row, job_id=job_id)

    def target(self, name: str, decode: Callable[..., TargetRecord], *args: Any) -> TargetRecord:
        """One that cannot be read counts as known, and always so: its jobs go on, and if no replica knows it that will
        be noticed once more."""
        return self.registry.read("target", name, decode, *args) or TargetRecord(name)

    def replica(
        self, id: str, fields: Fields, decode: Callable[..., ReplicaRecord], *args: Any
    ) -> ReplicaRecord | None:
        replica = self.registry.read("replica", id, decode, *args)
        if replica is None:
            self.presences[id] = salvaged_presence(id, salvaged(fields()))
        return replica

    def lease(self, fields: Fields, decode: Callable[..., Lease], *args: Any) -> Lease:
        lease = self.registry.read("lease", "leader", decode, *args)
        return lease if lease is not None else salvaged_lease(self.at, salvaged(fields()))

    def stored_fire(self, key: str) -> FireRecord | None:
        """As it was read."""
        return self._decoded[key][1] if key in self._decoded else None

    # --- what could not be read in this unit of work ----------------------------------------------------------

    def live_of(self, job_id: str, now: datetime) -> Sequence[FireRecord]:
        broken = [key for key, each in self.fires.items() if each.live and each.job_id == job_id]
        return [blank_fire(key, job_id, now) for key in broken]

    def holds_run_of(self, replica: str) -> bool:
        return any(each.live and each.replica == replica for each in self.fires.values())

    def fire_written(self, key: str) -> None:
        if self.fires.pop(key, None):
            self.registry.forget("fire", key)
