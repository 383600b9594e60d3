"""P-later, P-backfill, P-skip, P-jitter: what people have asked of a schedule, by books of its own."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

from fencepost.model import FireRecord, State
from fencepost.model.triggers import from_iso
from tests.protocol.calendar import due_between
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge, Step

INSTANT = timedelta(microseconds=1)


@dataclass
class Asked:
    """A backfill."""

    due: frozenset[datetime]
    limit: int
    only_missing: bool
    held: bool = False
    cancelled: bool = False
    active: frozenset[str] = frozenset()
    """Its fires that run, or wait to be run again."""
    added: frozenset[datetime] = field(default_factory=frozenset)


class Backfills(Judge):
    lost_with_the_store: ClassVar = ("_later", "_skips", "_succeeded")

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._later: dict[str, datetime] = {}
        """By fire: not before when."""
        self._asked: dict[tuple[str, str], Asked] = {}
        self._skips: dict[str, frozenset[datetime]] = defaultdict(frozenset)
        self._succeeded: frozenset[str] = frozenset()
        self._doubtful = False
        """The store has lost data: how far a backfill had come is not known."""

    # --- what is asked for ----------------------------------------------------------------------------------------

    def _add_fire(self, step: Step) -> None:
        if step.reply.outcome == "added" and step.args[0].delay:
            self._later[step.args[0].key] = self.books.moment().wall + timedelta(seconds=step.args[0].delay)

    def _change_job(self, step: Step) -> None:
        change, reply = step.args[0], step.reply
        if reply is None:
            return
        if change.kind == "remove":
            self._skips[change.job_id] = frozenset()
            for (job_id, _), asked in self._asked.items():
                asked.cancelled = asked.cancelled or job_id == change.job_id
        elif change.kind == "skip":
            self._skips[change.job_id] |= {change.due_at}
        elif change.kind == "unskip":
            self._skips[change.job_id] -= {change.due_at}
        elif change.kind == "backfill" and (change.job_id, change.backfill.name) not in self._asked:
            self._begin(change.job_id, change.backfill)
        elif change.kind in ("pause backfill", "resume backfill", "cancel backfill"):
            asked = self._asked[change.job_id, change.name]
            asked.held = change.kind == "pause backfill"
            asked.cancelled = asked.cancelled or change.kind == "cancel backfill"
            if change.kind == "resume backfill":
                self.books.ask_again(change.name)

    def _begin(self, job_id: str, backfill: object) -> None:
        until = min(backfill.until, self.books.moment().wall)  # type: ignore[attr-defined]
        due = due_between(backfill.trigger.to_json(), backfill.since - INSTANT, until - INSTANT)  # type: ignore[attr-defined]
        asked = Asked(frozenset(due), backfill.limit, backfill.only_missing)  # type: ignore[attr-defined]
        self._asked[job_id, backfill.name] = asked  # type: ignore[attr-defined]

    # --- what becomes of it ---------------------------------------------------------------------------------------

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if after is None:
            return
        if after.state is State.SUCCEEDED:
            self._succeeded |= {after.key}
        begins = after.state is State.RUNNING and (before is None or before.state is State.PENDING)
        if begins and self.books.moment().wall < self._later.get(after.key, after.due_at):
            self._wrong("later", after, f"is claimed before {self._later.get(after.key)}")
        if after.scheduled and before is not None and before.state is State.PENDING:
            self._scheduled(after, begins)
        if after.backfill is not None and (after.job_id, after.backfill) in self._asked:
            self._of_backfill(before, after, self._asked[after.job_id, after.backfill])

    def _scheduled(self, fire: FireRecord, begins: bool) -> None:
        is_skipped = fire.state is State.SKIPPED and (fire.reason or "").startswith("on request")
        skip = fire.count == 1 and fire.due_at in self._skips[fire.job_id]
        if skip and (begins or fire.state is State.QUEUED):
            self._wrong("skip", fire, f"is {fire.state} although it was to be skipped")
        if is_skipped and not skip:
            self._wrong("skip", fire, "is skipped, which nobody has asked for")
        if not begins:
            return
        jitter = self.books.job(fire.job_id).job.jitter or timedelta(0)
        drawn = timedelta(seconds=fire.jitter_seconds)
        if drawn and not drawn < jitter:
            self._wrong("jitter", fire, f"was put off by {drawn}, the most is {jitter}")
        if jitter and self.books.moment().wall < fire.due_at + drawn:
            self._wrong("jitter", fire, f"is claimed before {fire.due_at + drawn}")

    def _of_backfill(self, before: FireRecord | None, fire: FireRecord, asked: Asked) -> None:
        due = from_iso((fire.repeats or {})["due_at"])
        if before is None:
            if due not in asked.due:
                self._wrong("backfill", fire, f"is of {due}, which is not in its range")
            if due in asked.added and not self._doubtful:
                self._wrong("backfill", fire, f"of {due} was added twice")
            if asked.only_missing and f"{fire.job_id}@{(fire.repeats or {})['due_at']}" in self._succeeded:
                self._wrong("backfill", fire, "was added although its fire has succeeded")
            asked.added |= {due}
        if fire.state is State.RUNNING and fire.key not in asked.active:
            if asked.held or asked.cancelled:
                self._wrong("backfill", fire, "is claimed although it is paused or cancelled")
            if len(asked.active) >= asked.limit:
                self._wrong(
                    "backfill", fire, f"runs beside {sorted(asked.active)}, the limit is {asked.limit}"
                )
        active = fire.state in (State.RUNNING, State.WAITING)
        asked.active = asked.active | {fire.key} if active else asked.active - {fire.key}

    def restored(self, snapshot: dict[str, object]) -> None:
        """Whatever was asked for since may be forgotten, too."""
        super().restored(snapshot)
        self._doubtful = True
        state = self.books.state
        for (job_id, name), asked in self._asked.items():
            stored = job_id in state.jobs.rows or ("job", job_id) in state.broken.rows
            backfill = self.books.job(job_id).backfill(name) if stored else None
            rows = [
                fire for fire in state.fires.rows.values() if (fire.job_id, fire.backfill) == (job_id, name)
            ]
            active = (fire.key for fire in rows if fire.state in (State.RUNNING, State.WAITING))
            asked.active = frozenset(active)
            asked.held = backfill is not None and backfill.paused
            asked.cancelled = backfill is None or backfill.cancelled

    # --- at the end -----------------------------------------------------------------------------------------------

    def finish(self, until: datetime) -> None:
        """Each due time has ended once, in a row of its own, or needed none."""
        state = self.books.state
        known = {name for replica in state.replicas.rows.values() for name in replica.targets}
        for (job_id, name), asked in self._asked.items():
            record = state.jobs.rows.get(job_id)
            backfill = record.backfill(name) if record is not None else None
            if record is None or asked.cancelled or record.job.target not in known:
                continue
            if record.job.execute_on == "leader" or record.removed_at or record.job.limits:
                continue
            if backfill is None or (backfill.paused and self._doubtful):
                continue
            lies_ahead = self._lies_ahead(job_id, name, until)
            if backfill.state != "done" and not lies_ahead:
                self.books.violation(
                    "P-backfill", f"{name} of {job_id} is {backfill.state} at the end: {backfill}"
                )
            for due in sorted(asked.due - asked.added):
                if lies_ahead and due > until:
                    continue  # it is added when those before it have ended
                key = f"{job_id}@{due:%Y-%m-%dT%H:%M:%S.%f}Z"
                if not asked.only_missing and not self._doubtful:
                    self.books.violation("P-backfill", f"{name} of {job_id}: {key} was never added")

    def _lies_ahead(self, job_id: str, name: str, until: datetime) -> bool:
        """Whether all that is left of it was added at a time that the clock, set back since, has yet to reach."""
        rows = self.books.state.fires.rows.values()
        left = [row for row in rows if (row.job_id, row.backfill) == (job_id, name) and not row.state.final]
        return bool(left) and all(row.due_at > until for row in left)

    def _wrong(self, subject: str, fire: FireRecord, text: str) -> None:
        self.books.violation(f"P-{subject}", f"{fire.key} {text}")
