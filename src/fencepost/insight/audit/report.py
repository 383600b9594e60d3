"""What an audit says: how many fires were due, what became of them, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fencepost.model import JobEvent, State
from fencepost.store.unreadable import Unreadable

MOST_LISTED = 1000
"""Findings of one kind, and events, that are listed. All are counted."""


class Kind(StrEnum):
    """What can be wrong."""

    UNACCOUNTED = "unaccounted"
    """Due, and in no row of the ledger."""
    DOUBLED = "doubled"
    """In two rows, or run again before the earlier run had ended."""
    OUTSIDE = "outside"
    """In the ledger, and in no calendar."""
    PAUSE_IGNORED = "pause_ignored"
    """Claimed although the job was paused."""
    TOKENS = "tokens"
    """A fencing token that does not increase."""
    OVERDUE = "overdue"
    """Due for longer than `misfire_after`, and no replica has decided it. The ledger is sound, but no replica works."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    kind: Kind
    job_id: str
    due_at: datetime
    why: str
    key: str | None = None
    """Of the row, if there is one."""
    last_due_at: datetime | None = None
    count: int = 1
    """Fires it concerns, from `due_at` to `last_due_at`."""


@dataclass
class AuditResult:
    now: datetime
    since: datetime
    until: datetime
    """Fires with since <= due < until were checked."""
    kept_since: datetime
    """Fires due before this may have been forgotten by now, and are never checked."""
    tzdata: str
    lost_through: datetime | None = None
    """When the store was last found to have lost data. Rows that it had acknowledged before then may be missing,
    and an audit cannot check missing rows."""
    jobs: int = 0
    manual: int = 0
    """Fires triggered by hand. They are in no calendar, but are checked for doubled runs and their tokens."""
    backfilled: int = 0
    """Those of them that belong to a backfill."""
    expected: int = 0
    """Fires that were due."""
    pending: int = 0
    """Not final, and rightly so: due just now, running, queued, waiting to be run again, or held back."""
    states: Counter[State] = field(default_factory=Counter)
    """Of the fires that were due and are final."""
    findings: dict[Kind, list[AuditFinding]] = field(default_factory=lambda: {kind: [] for kind in Kind})
    found: Counter[Kind] = field(default_factory=Counter)
    """Fires concerned, also beyond those listed."""
    events: list[JobEvent] = field(default_factory=list)
    """Definitions, pauses and removals in the window, by job."""
    events_found: int = 0
    forgotten: dict[str, datetime] = field(default_factory=dict)
    """Jobs whose history is known only after this moment, in the window. What was due before cannot be worked
    out, so those rows are not compared with a calendar."""

    unreadable: list[Unreadable] = field(default_factory=list)
    """Rows that cannot be read here. A job whose definition or history is among them was not checked."""

    @property
    def clean(self) -> bool:
        return not self.found.total() and not any(row.job_id for row in self.unreadable)

    @property
    def ran(self) -> int:
        return self.states[State.SUCCEEDED] + self.states[State.FAILED]

    def find(self, finding: AuditFinding) -> None:
        self.found[finding.kind] += finding.count
        if len(self.findings[finding.kind]) < MOST_LISTED:
            self.findings[finding.kind].append(finding)

    def note(self, events: Sequence[JobEvent]) -> None:
        within = [event for event in events if self.since <= event.at < self.until]
        self.events_found += len(within)
        self.events += within[: MOST_LISTED - len(self.events)]
