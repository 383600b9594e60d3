"""One job: its calendar beside its rows, both in the order of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fencepost.insight.audit.claims import AuditedClaims
from fencepost.insight.audit.report import AuditFinding, AuditResult, Kind
from fencepost.model import FireRecord, JobEvent, JobRecord, Reason, State, fire_key
from fencepost.model.periods import INSTANT, JobCalendar

PATIENCE = timedelta(seconds=10)
"""A due fire may stay undecided for at least this long, however small `misfire_after`: replicas need time."""

MISFIRE_AFTER = timedelta(seconds=30)
"""Of a job that was removed: its own is not known any more."""

AN_HOUR = timedelta(hours=1)

NOT_ROW = "it was due, and no row of the ledger has it"
NOT_DECIDED = "it is due, and nobody has decided it"


@dataclass(frozen=True, slots=True)
class Absent:
    """Fires of the calendar in [first, last] that were in no row when the ledger was read."""

    first: datetime
    last: datetime
    before: FireRecord | None
    """The row before them, if there was one in the window."""


class JobAudit:
    """Fed with the rows of the job in the order of their due times; then `finish`."""

    def __init__(
        self,
        job_id: str,
        history: Sequence[JobEvent],
        record: JobRecord | None,
        orphaned: bool,
        report: AuditResult,
    ) -> None:
        self.job_id = job_id
        self.calendar = JobCalendar(history)
        self.absent: list[Absent] = []
        """To be checked again: replicas may join rows while the ledger is read."""
        self._follows = any(event.trigger and event.trigger.get("type") == "after" for event in history)
        """Whether it is, or was, a job that follows others."""
        self._report = report
        self._claims = AuditedClaims(history)
        within = record.job.decided_within if record else MISFIRE_AFTER
        self._decided_by_now = report.now - max(within, PATIENCE)
        """What was due by then should have been decided."""
        self._held = orphaned or (record is not None and record.paused_at(report.now) is not None)
        self._planned_until = record.segments[0].cursor if record and record.segments else None
        """Later fires are not in the ledger yet. None: none are to come."""
        self._before: FireRecord | None = None
        """The last row that the calendar has."""
        self._covered = report.since - INSTANT
        """Up to here each fire of the calendar was met."""
        if self.calendar.known_after >= report.since:
            report.forgotten[job_id] = self.calendar.known_after
            self._covered = self.calendar.known_after
        self._judged_after = self._covered
        self._fires = self.calendar.after(self._covered)
        self._next = next(self._fires, None)

    # --- row by row ---------------------------------------------------------------------------------------

    def row(self, fire: FireRecord) -> None:
        for finding in self._claims.check(fire):
            self._report.find(finding)
        if not fire.scheduled:
            self._report.manual += 1
            self._report.backfilled += fire.backfill is not None
        elif fire.due_at > self._judged_after:
            self._place(fire)

    def _place(self, fire: FireRecord) -> None:
        """Where in the calendar is it?"""
        if self._follows and (fire.due_at <= self._covered or not self.calendar.has(fire.due_at)):
            # Its parents had it due (see `chains`), whatever its own calendar before or after that has.
            self._report.expected += fire.count
            self._account(fire, fire.due_at, fire.count)
            if fire.count > 1:
                self._join(fire)
        elif (
            fire.reason == Reason.PAST
            and self.calendar.lists(fire.due_at)
            and not self.calendar.has(fire.due_at)
        ):
            # An `at` was declared with it when later fires had been decided: it is in no calendar, but on record.
            self._report.expected += 1
            self._account(fire, fire.due_at, 1)
        elif fire.due_at > self._covered:
            self._expect_until(fire.due_at - INSTANT)
            if self._next != fire.due_at:
                self._find(Kind.OUTSIDE, fire, "it is in the ledger, and no calendar has it")
                return
            self._met(fire, fire.due_at)
        elif not self.calendar.has(fire.due_at):
            self._find(Kind.OUTSIDE, fire, "it is in the ledger, and no calendar has it")
        else:
            twice = self.calendar.count(fire.due_at, min(fire.last_due, self._covered))
            self._find(Kind.DOUBLED, fire, f"it is in {self._named_before()} as well", twice)
            if fire.last_due > self._covered and self._next is not None:
                self._met(fire, self._next)

    def _join(self, fire: FireRecord) -> None:
        """The row begins with what its parents had due, and goes on with fires of its own calendar: at most so many."""
        self._expect_until(fire.due_at - INSTANT)
        met = 1
        while self._next is not None and self._next <= fire.last_due and met < fire.count:
            self._covered, self._next, met = self._next, next(self._fires, None), met + 1

    def _met(self, fire: FireRecord, first: datetime) -> None:
        """The row stands for the calendar's fires from `first` to its last."""
        if fire.count == 1:
            self._report.expected += 1
            self._account(fire, first, 1)
            self._covered = fire.due_at
            self._next = next(self._fires, None)
        else:
            self._met_many(fire, first)
        self._before = fire

    def _met_many(self, fire: FireRecord, first: datetime) -> None:
        """Only those in the window count, but what the row says of itself is checked as a whole."""
        last = min(fire.last_due, self._report.now + AN_HOUR)  # a damaged row must not take for ever
        has = self.calendar.count(fire.due_at, last)
        within = self.calendar.count(first, min(last, self._report.until - INSTANT))
        says = f"it stands for {fire.count} fires up to {_short(fire.last_due)}"
        missing = 0
        if fire.token:
            missing = within - 1
            self._find(Kind.UNACCOUNTED, fire, f"{says}, and is a single run", missing)
        elif fire.count > has or not self.calendar.has(fire.last_due):
            why = f"{says}, of which the calendar has {has}"
            self._find(Kind.OUTSIDE, fire, why, max(1, fire.count - has))
        elif fire.count < has:
            missing = min(within, has - fire.count)
            self._find(Kind.UNACCOUNTED, fire, f"{says}, and the calendar has {has}", missing)
        self._report.expected += within
        self._account(fire, first, within - missing)
        self._covered = last
        self._fires = self.calendar.after(last)
        self._next = next(self._fires, None)

    def _account(self, fire: FireRecord, first: datetime, fires: int) -> None:
        if fire.state.final:
            self._report.states[fire.state] += fires
        elif fire.state is not State.PENDING or self._held or first > self._decided_by_now:
            self._report.pending += fires
        else:
            self._find(Kind.OVERDUE, fire, NOT_DECIDED, fires)

    def finish(self) -> None:
        self._expect_until(self._report.until - INSTANT)

    # --- fires without a row ------------------------------------------------------------------------------

    def _expect_until(self, end: datetime) -> None:
        """The calendar's fires up to there have no row, if there are any."""
        first, last = self._next, None
        while self._next is not None and self._next <= end:
            self._report.expected += 1
            last = self._next
            self._next = next(self._fires, None)
        if first is not None and last is not None:
            self.absent.append(Absent(first, last, self._before))
            self._covered = last

    def explain(self, absent: Absent, row: FireRecord | None) -> Absent | None:
        """Account for those that this row stands for after all; what is left."""
        if row is None or row.last_due < absent.first:
            return absent
        last = min(row.last_due, absent.last)
        self._account(row, absent.first, self.calendar.count(absent.first, last))
        rest = next(self.calendar.after(last), None)
        return Absent(rest, absent.last, row) if rest is not None and rest <= absent.last else None

    def judge(self, absent: Absent) -> None:
        """Report fires that are in no row, unless they are still pending."""
        for kind, first, last, count in self._stretches(absent):
            if kind is None:
                self._report.pending += count
                continue
            why = NOT_ROW if kind is Kind.UNACCOUNTED else f"{NOT_DECIDED}: it is not planned yet"
            key = fire_key(self.job_id, first)
            self._report.find(AuditFinding(kind, self.job_id, first, why, key, last, count))

    def _stretches(self, absent: Absent) -> Iterator[tuple[Kind | None, datetime, datetime, int]]:
        """Groups neighbouring fires of the same kind. None: it is too early to judge them."""
        kind, first, last, count = self._kind(absent.first), absent.first, absent.first, 0
        for due in self.calendar.after(absent.first - INSTANT):
            if due > absent.last:
                break
            if (new := self._kind(due)) is not kind:
                yield kind, first, last, count
                kind, first, count = new, due, 0
            last, count = due, count + 1
        yield kind, first, last, count

    def _kind(self, due: datetime) -> Kind | None:
        if due > self._decided_by_now:
            return None
        if self._planned_until is None or due <= self._planned_until:
            return Kind.UNACCOUNTED
        return None if self._held else Kind.OVERDUE

    def _find(self, kind: Kind, fire: FireRecord, why: str, count: int | None = None) -> None:
        fires = fire.count if count is None else count
        self._report.find(AuditFinding(kind, self.job_id, fire.due_at, why, fire.key, fire.last_due, fires))

    def _named_before(self) -> str:
        return self._before.key if self._before else "an earlier row"


def _short(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"
