"""The reference model: the rules over dictionaries.

It *is* the memory store, it is what the simulator drives, what the file store logs and replays, and what SQL
and Redis are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fencepost.model import Lease
from fencepost.store.rows import Rows, TargetRecord
from fencepost.store.tables import BrokenRows, EntryTable, FireTable, JobTable, ReplicaTable, TargetTable
from fencepost.store.unreadable import Unreadable, UnreadableRows


class StoreState(Rows):
    jobs: JobTable
    targets: TargetTable
    fires: FireTable
    replicas: ReplicaTable
    entries: EntryTable

    def __init__(self, registry: UnreadableRows | None = None) -> None:
        self.registry = UnreadableRows() if registry is None else registry
        self.broken = BrokenRows(self.registry)
        self.replicas = ReplicaTable(self.broken)
        self.targets = TargetTable(self.broken, self.replicas)
        self.jobs = JobTable(self.broken, self.targets)
        self.fires = FireTable(self.broken)
        self.entries = EntryTable()
        self._leader = Lease()

    @property
    def leader(self) -> Lease:
        return self._leader

    @leader.setter
    def leader(self, lease: Lease) -> None:
        self._leader = lease

    def prune_before(self, before: datetime) -> int:
        gone = self.fires.prune_before(before)
        self.jobs.prune_events(before)
        return gone

    def set_aside(
        self, row: Unreadable, content: Any = None, salvaged: Mapping[str, Any] | None = None
    ) -> None:
        """This row cannot be read any more."""
        self.broken.add(row, content, salvaged)
        if row.kind == "job" and not row.foreign:
            self.jobs.rows.pop(row.key, None)
        elif row.kind == "fire" and row.key in self.fires.rows:
            self.fires.forget(row.key)
        elif row.kind == "replica":
            self.replicas.rows.pop(row.key, None)
        elif row.kind == "target":
            self.targets.rows[row.key] = TargetRecord(row.key)
