"""P-chain: a child has exactly the fires that its parents let go, each in the step in which the last of them ended; or
later, if a row could not be read just then."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from fencepost.model import FireRecord, Reason, State
from fencepost.model.triggers.following import After
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge, Step


class Chains(Judge):
    lost_with_the_store: ClassVar[tuple[str, ...]] = ("_owed",)

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._ended: list[FireRecord] = []
        self._added: list[FireRecord] = []
        self._owed: dict[tuple[str, str], int] = {}
        """By the fire that has ended while a row could not be read, and the child: the version of its trigger."""

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if after is None:
            return
        if after.state.final and (before is None or not before.state.final) and after.count == 1:
            self._ended.append(after)
        # What the planner adds, which a calendar before this one still owes, is pending.
        chained = after.state is State.QUEUED or after.by.startswith("after ")
        if before is None and chained and isinstance(self._trigger(after.job_id), After):
            self._added.append(after)

    def step(self, step: Step) -> None:
        rows = self.books.state.fires.rows
        children = [id for id in self.books.state.jobs.rows if isinstance(self._trigger(id), After)]
        if self.books.state.broken.rows:
            self._note_owed()
        for fire in self._ended if children and not self.books.state.broken.rows else ():
            for id in children:
                trigger = self._trigger(id)
                if not isinstance(trigger, After) or fire.job_id not in trigger.parents:
                    continue
                if self.books.job(id).removed_at is None and self._all_let_go(trigger, fire):
                    key = id + fire.key[len(fire.job_id) :]
                    if key not in rows and not self._in_stretch(id, fire):
                        self.books.violation("P-chain", f"{fire.key} has ended, and there is no {key}")
        for fire in [each for each in self._added if each.key in rows and not rows[each.key].state.final]:
            trigger = self._trigger(fire.job_id)
            if isinstance(trigger, After) and not self._all_let_go(trigger, fire):
                self.books.violation("P-chain", f"{fire.key} is added before its parents have let it go")
        self._ended.clear()
        self._added.clear()

    def _note_owed(self) -> None:
        state = self.books.state
        unread = [key for kind, key in state.broken.rows if kind == "job"]
        for id in (*state.jobs.rows, *unread):
            trigger = self._trigger(id)
            for fire in self._ended if isinstance(trigger, After) else ():
                if isinstance(trigger, After) and fire.job_id in trigger.parents:
                    self._owed[fire.key, id] = self.books.job(id).version

    def finish(self, until: datetime) -> None:
        rows = self.books.state.fires.rows
        for (parent, id), version in self._owed.items():
            fire, child, trigger = rows.get(parent), self.books.job(id), self._trigger(id)
            if fire is None or child.removed_at is not None or child.version != version:
                continue
            key = id + fire.key[len(fire.job_id) :]
            if not isinstance(trigger, After) or not self._all_let_go(trigger, fire):
                continue
            if key not in rows and not self._in_stretch(id, fire):
                what = f"{fire.key} has ended while a row could not be read, and there is no {key}"
                self.books.violation("P-chain", what)

    def _in_stretch(self, job_id: str, fire: FireRecord) -> bool:
        """Whether a row of many of this job has it: as one that no replica could run."""
        rows = [row for row in self.books.state.fires.rows.values() if row.job_id == job_id and row.count > 1]
        return any(row.due_at <= fire.due_at <= row.last_due for row in rows)

    def _trigger(self, job_id: str) -> object:
        return self.books.job(job_id).job.trigger

    def _all_let_go(self, trigger: After, fire: FireRecord) -> bool:
        ending = fire.key[len(fire.job_id) :]
        found = [self.books.state.fires.rows.get(parent + ending) for parent in trigger.parents]
        return all(each is not None and each.state.final and self._lets_go(trigger, each) for each in found)

    def _lets_go(self, trigger: After, fire: FireRecord) -> bool:
        if trigger.when == "succeeded":
            return fire.state is State.SUCCEEDED
        return fire.state in (State.SUCCEEDED, State.FAILED) or bool(
            fire.attempt and fire.reason != Reason.PARENT
        )
