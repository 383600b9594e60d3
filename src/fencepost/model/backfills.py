"""Backfills: the past due times of a job's calendar, run as fires of their own; and coming fires that are left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, takewhile

from fencepost.model.fires import FireRecord, Reason, fire_key, manual_key
from fencepost.model.triggers import Trigger, iso
from fencepost.model.values import Json, changed

MOST_FIRES = 100_000
"""Fires of one backfill."""
MOST_AT_ONCE = 100
"""The highest `limit`."""
MOST_KEPT = 20
"""Backfills that a job remembers, the latest."""
MOST_SKIPS = 100
"""Coming fires of one job that are to be skipped."""
_FIRST_WINDOW = timedelta(hours=1)


@dataclass(frozen=True)
class Backfill:
    """Fires with since <= due < until, run as fires of a key space of their own. The leader adds their rows a page at a
    time; `cursor` says how far it has come."""

    name: str
    trigger: Trigger
    since: datetime
    until: datetime
    cursor: datetime
    """The due time of the last row added; before the first: just outside of the range."""
    limit: int = 1
    """How many may run at once."""
    reverse: bool = False
    only_missing: bool = False
    """Pass over what the ledger has as succeeded, or as not ended."""
    total: int = 0
    """Due times in the range."""
    by: str = ""
    created_at: datetime | None = None
    confirmed_at: datetime | None = None
    """When a person last asked for it: created or resumed."""
    paused: bool = False
    note: str = ""
    """Why it is paused, if no person has paused it."""
    cancelled: bool = False
    cancelled_by: str = ""
    exhausted: bool = False
    """All rows have been added."""
    is_fed: bool = False
    """Enough of its rows wait for their turn, or it wants none: worked out whenever its job is written."""
    fed_at: datetime | None = None
    """When rows were last added: where the store's clock has stepped back, they seem to lie ahead."""
    finished_at: datetime | None = None
    added: int = 0
    passed: int = 0
    """Due times that needed no run."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """By final state."""

    @property
    def state(self) -> str:
        if self.cancelled:
            return "cancelled"
        if self.finished_at is not None:
            return "done"
        return "paused" if self.paused else "running"

    @property
    def is_open(self) -> bool:
        """Whether something of it may still run."""
        return self.finished_at is None

    @property
    def wants_rows(self) -> bool:
        return self.is_open and not (self.exhausted or self.paused or self.cancelled or self.is_fed)

    @property
    def page(self) -> int:
        """Rows that wait for their turn, at the most: the ledger is not flooded."""
        return 20 + 2 * self.limit

    def key(self, job_id: str, due_at: datetime) -> str:
        return manual_key(job_id, f"backfill-{self.name}:{iso(due_at)}")

    def repeats(self, job_id: str, due_at: datetime) -> dict[str, Json]:
        """As `FireRecord.repeats`: its effects are those of the scheduled fire."""
        key = fire_key(job_id, due_at)
        return {"key": key, "due_at": iso(due_at), "effect_key": key, "backfill": self.name}

    def next_due(self, most: int) -> list[datetime]:
        """The due times after the cursor, in the order in which they are run."""
        if not self.reverse:
            due = takewhile(lambda fire: fire < self.until, self.trigger.after(self.cursor))
            return list(islice(due, most))
        return list(islice(self._backwards(), most))

    def _backwards(self) -> Iterator[datetime]:
        """Calendars are walked forwards: a window before the cursor at a time, ever wider where little is found."""
        end, width = self.cursor, _FIRST_WINDOW
        while end > self.since:
            begin = max(self.since, end - width) if end - self.since > width else self.since
            before = begin - datetime.resolution
            found = list(takewhile(lambda fire: fire < end, self.trigger.after(before)))  # noqa: B023
            yield from reversed(found)
            end, width = begin, width * 2 if len(found) < 100 else width


def counted(backfills: Sequence[Backfill], fire: FireRecord) -> tuple[Backfill, ...]:
    """With the end of this fire on record."""
    return tuple(
        changed(each, ended={**each.ended, fire.state.value: each.ended.get(fire.state.value, 0) + 1})
        if each.name == fire.backfill
        else each
        for each in backfills
    )


@dataclass(frozen=True)
class Skip:
    """A coming fire that is not to run."""

    due_at: datetime
    reason: str = ""
    by: str = ""

    @property
    def text(self) -> str:
        """The reason in the ledger. A fire that a person has named stays a row of its own."""
        return f"{Reason.REQUESTED}: {self.reason}" if self.reason else Reason.REQUESTED.value
