"""P-limit: never more runs at once, nor starts in a while, than a limit allows; and no place left idle.

The books are kept from rows and definitions alone: the store's own row of a limit is not looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar

from fencepost.model import FireRecord, Job, JobRecord, Reason, State
from fencepost.model.limits import ROW
from fencepost.store.rules.limits import CHECK_AGAIN
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge, Step


class Limits(Judge):
    lost_with_the_store: ClassVar[tuple[str, ...]] = ("_starts",)

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._starts: dict[str, tuple[tuple[datetime, float], ...]] = {}
        """By limit, those that its rate was asked for: by the store's clock, and by the true time."""
        self._unread: dict[str, datetime] = {}
        """By limit: when its row last could not be read. What waited then is decided within `CHECK_AGAIN`."""
        self._claimed: list[FireRecord] = []
        self._skipped: list[FireRecord] = []

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if before is None or after is None:
            return
        if after.state is State.RUNNING and before.state is not State.RUNNING:
            self._claimed.append(after)
        if after.reason == Reason.LIMIT and not before.state.final:
            self._skipped.append(after)

    def step(self, step: Step) -> None:
        now = self.books.moment().wall
        self._unread |= {
            key.removeprefix(ROW): now for _, key in self.books.state.broken.rows if key.startswith(ROW)
        }
        for fire in self._claimed:
            for each in self.books.job(fire.job_id).job.limits:
                if each.per_seconds is None:
                    self._at_once(each.name, fire)
                else:
                    self._rate(each.name, each.per_seconds, fire)
        for fire in self._skipped:
            if not any(each.full == "skip" for each in self.books.job(fire.job_id).job.limits):
                self._wrong(fire, "is skipped by a limit that lets it wait")
        if self._claimed or step.name in ("update_claims", "sweep", "claim_fires"):
            self._no_place_is_idle()
        self._claimed.clear()
        self._skipped.clear()

    def _at_once(self, name: str, fire: FireRecord) -> None:
        """Runs that were there before a definition made the limit smaller are not stopped: only claims are judged."""
        running, sizes = self._running(name), self._sizes(name)
        if len(running) > min(sizes):
            self._wrong(fire, f"is claimed under {name} of {min(sizes)}, beside {running}")

    def _rate(self, name: str, per_seconds: int, fire: FireRecord) -> None:
        now = self.books.moment().wall
        rates = [
            (each.size, each.per_seconds)
            for job in self._jobs()
            for each in job.limits
            if each.name == name and each.per_seconds
        ]
        count, per = min(rates, key=lambda rate: (rate[0] / rate[1], rate[0]))
        # What the clock, set back since, puts ahead of now was a start all the same, but in no stretch up to now. Nor
        # is one that is longer ago than the stretch, when the clock comes to the same time once more.
        begin, truly = now - timedelta(seconds=per), self.books.now() - per
        starts = self._starts.get(name, ())
        recent = [wall for wall, true in starts if begin < wall <= now and true > truly]
        self._starts[name] = (*starts, (now, self.books.now()))
        if len(recent) + 1 > count:
            self._wrong(fire, f"is start number {len(recent) + 1} in {per} s under {name}")

    def _no_place_is_idle(self) -> None:
        """Where there is room the next job is to be decided by now: by its priority, then by how long it waits."""
        state, now = self.books.state, self.books.moment().wall
        if self.books.stepped_back or state.broken.rows:
            return
        waiting: dict[str, list[FireRecord]] = defaultdict(list)
        for job in self._jobs():
            names = [each.name for each in job.limits if each.per_seconds is None]
            record = self.books.job(job.id)
            due = state.fires.due(job.id, now)
            if record.pause_lasting(now) is not None or self._may_be_replaced(record, due, now):
                continue
            if len(job.limits) == len(names) == 1:
                queued = [fire for fire in due if fire.state is State.QUEUED]
                waiting[names[0]] += queued[:1] if not state.fires.active(job.id) else []
        for name, fires in waiting.items():
            if not fires or len(self._running(name)) >= min(self._sizes(name)):
                continue
            first = min(fires, key=self._turn)
            if name in self._unread and now <= self._unread[name] + CHECK_AGAIN:
                continue
            look = state.decide_at(first.job_id)
            if look is None or look > now:
                self._wrong(first, f"waits although {name} has room, and is not decided before {look}")

    def _may_be_replaced(self, record: JobRecord, due: Sequence[FireRecord], now: datetime) -> bool:
        """Whether newer fires wait for the planner, and so does what they would replace."""
        fresh = [fire for fire in due if fire.scheduled and fire.state is State.PENDING]
        late = bool(fresh) and now - fresh[0].due_at > record.job.misfire_after
        return late and record.behind_at(now) and record.job.overlap.kind == "replace"

    def _turn(self, fire: FireRecord) -> tuple[int, datetime, str]:
        return -self.books.job(fire.job_id).job.priority, fire.due_at, fire.job_id

    def _jobs(self) -> list[Job]:
        records = [self.books.job(id) for id in self.books.state.jobs.rows if not id.startswith(ROW)]
        return [record.job for record in records if record.removed_at is None]

    def _sizes(self, name: str) -> list[int]:
        return [
            each.size
            for job in self._jobs()
            for each in job.limits
            if each.name == name and each.per_seconds is None
        ]

    def _running(self, name: str) -> list[str]:
        found: dict[str, list[str]] = defaultdict(list)
        for fire in self.books.state.fires.rows.values():
            if fire.state is State.RUNNING:
                found[fire.job_id].append(fire.key)
        carrying = [
            id
            for id in found
            if any(each.name == name and each.per_seconds is None for each in self.books.job(id).job.limits)
        ]
        return [key for id in carrying for key in found[id]]

    def _wrong(self, fire: FireRecord, text: str) -> None:
        self.books.violation("P-limit", f"{fire.key} {text}")
