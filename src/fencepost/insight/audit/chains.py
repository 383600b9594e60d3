"""Chains in the audit: whatever all parents of a job have let go must have a fire of that job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from fencepost.insight.audit.report import AuditFinding, Kind
from fencepost.model import FireRecord, JobRecord, State
from fencepost.model.triggers.following import After

PATIENCE = timedelta(seconds=10)
"""The child's row is written with the parent's; the two may be read on pages that are a moment apart."""


class Chains:
    """Fed with all rows of the window. Knows the definitions in force, each from when on it was declared."""

    def __init__(self, records: Mapping[str, JobRecord]) -> None:
        self._children = {
            id: (record, record.job.trigger)
            for id, record in records.items()
            if isinstance(record.job.trigger, After) and record.removed_at is None
        }
        self._parents = {parent for _, trigger in self._children.values() for parent in trigger.parents}
        self._ended: dict[str, dict[datetime, FireRecord]] = defaultdict(dict)
        self._stretches: dict[str, list[FireRecord]] = defaultdict(list)

    def row(self, fire: FireRecord) -> None:
        if fire.job_id in self._parents or fire.job_id in self._children:
            if fire.scheduled and fire.count == 1:
                self._ended[fire.job_id][fire.due_at] = fire
            elif fire.count > 1:
                self._stretches[fire.job_id].append(fire)

    def missing(self, now: datetime) -> Iterator[AuditFinding]:
        for id, (record, trigger) in self._children.items():
            first = self._ended[trigger.parents[0]]
            for due, fire in first.items():
                fires = [self._ended[parent].get(due) for parent in trigger.parents]
                ends = [each.finished_at for each in fires if each is not None and _lets_go(trigger, each)]
                known = [end for end in ends if end is not None]
                if len(known) < len(fires) or due in self._ended[id] or self._covered(id, due):
                    continue
                if record.changed_at < max(known) < now - PATIENCE:
                    why = f"{fire.key} let it go, and no row of the ledger has it"
                    yield AuditFinding(
                        Kind.UNACCOUNTED, id, due, why, id + fire.key[len(fire.job_id) :], due, 1
                    )

    def _covered(self, job_id: str, due: datetime) -> bool:
        return any(row.due_at <= due <= row.last_due for row in self._stretches[job_id])


def _lets_go(trigger: After, fire: FireRecord) -> bool:
    if not fire.state.final:
        return False
    return fire.state is State.SUCCEEDED if trigger.when == "succeeded" else fire.attempt >= 1
