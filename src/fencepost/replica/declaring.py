"""Declaring: writes what this replica's code defines, and says if something else holds.

A definition is written once, after the start. What becomes of it later is checked a page at a time: another
application may declare the same id, a person may have made another definition. Once per heartbeat at first and while
something is disputed; then a page every five, and twelve between two rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.model import Job, JobRecord, Origin
from fencepost.model.triggers.following import CIRCLE
from fencepost.replica.origins import origin_of
from fencepost.replica.service import Service
from fencepost.store.base import ChangeJob, JobPut, PutJob

if TYPE_CHECKING:
    from fencepost.replica.replica import Replica

FEWEST_AT_ONCE, FIRST_AT_ONCE, MOST_AT_ONCE = 20, 100, 500
"""Jobs in one step. After one that succeeds the next has twice as many, after one that fails a quarter: where
processor time is short a store may be unable to take many in time. Half of what failed is the most from then on, and
20 more with each step that succeeds: a step that fails may have cost seconds."""
PAGE = 100
"""Jobs checked per heartbeat: the cost does not grow with the number of jobs."""
ROUNDS_AT_FIRST = 3
"""Rounds of checks with a page per heartbeat."""
BETWEEN_PAGES, BETWEEN_ROUNDS = 5, 12
"""Heartbeats in later rounds. A replica alone has little more than one command a minute to spare."""
DELETED = "deleted from the job file"
"""Why a replica, and not a person, removed a job."""

UNREAD_PARENT = "it follows {}, and that job cannot be read; see `fencepost doctor`"
REASONS = {
    "older revision": "the stored definition is of a newer revision",
    "flip back": "the stored definition has replaced this one, and a live replica declares it",
    "made by hand": (
        "the stored definition was made by hand and holds; put it into the code, or go back to the code with "
        "`fencepost jobs rm` and a restart"
    ),
}


class Declarer(Service):
    def __init__(self, replica: Replica, jobs: Iterable[Job], job_file: Path | None = None) -> None:
        super().__init__(replica)
        self._undeclared = list(jobs)
        self._at_once, self._most_at_once = FIRST_AT_ONCE, MOST_AT_ONCE
        self._declared: dict[str, Job] = {}
        self._file = None if job_file is None else str(job_file)
        """The file that declares all jobs of this replica."""
        self._left: set[str] | None = None
        """Stored jobs of this file that it does not have any more; None: to be found out."""
        self._place = 0
        """Where the next page begins."""
        self._check_at = 0.0
        self._rounds = 0
        """How often all of them were checked since something was last declared."""
        self._losses = 0
        """How often the store was found to have lost data."""
        self._disputed: set[str] = set()
        """Jobs that another application declares, too."""
        self._unread: set[str] = set()
        """Jobs that were refused because they, or jobs that they follow, cannot be read."""
        self._reported: dict[str, str] = {}
        """By job: what was last said of its definition."""

    # --- what there is to declare -------------------------------------------------------------------------

    def add(self, jobs: Iterable[Job]) -> None:
        """Takes effect when the store answers."""
        self._undeclared += jobs
        self._compare_anew()

    def withdraw(self, ids: Collection[str]) -> None:
        """These are not declared here any more."""
        self._undeclared = [job for job in self._undeclared if job.id not in ids]
        for id in ids:
            self._declared.pop(id, None)
            self._reported.pop(id, None)
        self._disputed.difference_update(ids)
        self._unread.difference_update(ids)
        self._compare_anew()

    def again(self) -> None:
        """The store has lost data: what was written may be gone."""
        self._losses += 1
        declared, self._declared = self._declared, {}
        self.add(declared.values())

    def _compare_anew(self) -> None:
        self._left, self._check_at, self._rounds = None, 0.0, 0
        self.wake()

    # --- one turn -----------------------------------------------------------------------------------------

    async def step(self) -> float | None:
        replica = self.replica
        if not replica.heartbeat.has_joined:
            return None
        if await self._put_undeclared() or not replica.is_ready:
            replica.declared()
        if replica.store_is_lost:
            return None  # it is woken when the store answers again
        if (wait := self._check_at - replica.clock.steady()) > 0:
            return wait
        await self._check_page()
        await self._remove_deleted()
        delay = replica.settings.heartbeat.total_seconds() * self._heartbeats_until_next_check()
        self._check_at = replica.clock.steady() + delay
        return delay

    def _heartbeats_until_next_check(self) -> int:
        """One at first, when replicas that start together may contradict each other, and as long as something is
        disputed. Later a change that concerns this replica is rare, and it is only to be reported."""
        round_is_over = self._place == 0
        self._rounds += round_is_over
        is_settled = not (self._disputed or self._unread or self._reported or self._left)
        if not is_settled or self._rounds <= ROUNDS_AT_FIRST:
            return 1
        return BETWEEN_ROUNDS if round_is_over else BETWEEN_PAGES

    async def _put_undeclared(self) -> bool:
        """A batch at a time; whether there were any."""
        wrote = False
        if self._undeclared and self.replica.notifier is not None:
            await self.replica.notifier.declare()
        while batch := self._undeclared[: self._at_once]:
            losses, taken, most = self._losses, self._at_once, self._most_at_once
            self._at_once = max(FEWEST_AT_ONCE, taken // 4)  # unless it is answered
            self._most_at_once = max(FEWEST_AT_ONCE, taken // 2)
            await self._put(batch)
            self._most_at_once = min(MOST_AT_ONCE, most + FEWEST_AT_ONCE)
            self._at_once = min(self._most_at_once, 2 * taken)
            if losses == self._losses:  # else this may be lost, too, and is written once more
                del self._undeclared[: len(batch)]
                self._declared.update({job.id: job for job in batch})
            wrote = True
        return wrote

    async def _put(self, jobs: Sequence[Job]) -> tuple[JobPut, ...]:
        puts = [
            PutJob(job, self.replica.settings.revision, self.replica.id, origin=self._origin(job))
            for job in jobs
        ]
        answers = await self.replica.store.put_jobs(puts)
        for put, answer in zip(puts, answers, strict=True):
            if answer.outcome == "other origin":
                self._disputed.add(answer.job_id)
                self._report_conflict(answer.job_id, put.origin, answer.origin)
            elif answer.refused:
                self._report_refused(answer)
            (self._unread.add if answer.outcome == "unreadable" else self._unread.discard)(answer.job_id)
        return answers

    def _origin(self, job: Job) -> Origin | None:
        if job.target not in self.replica.registry:
            return None
        return origin_of(self.replica.registry.get(job.target).function, self.replica.settings.origin)

    # --- what became of it --------------------------------------------------------------------------------

    async def _check_page(self) -> None:
        ids = dict.fromkeys((*self._next_page(), *sorted(self._disputed)[:PAGE]))
        mine = {id: self._declared[id] for id in ids if id in self._declared}
        if not mine:
            return
        records = {record.id: record for record in await self.replica.store.jobs(list(mine))}
        moved = [record for record in records.values() if self._is_anothers(record, mine[record.id])]
        if moved:
            await self._ask_for(moved, mine)
        live = await self._at_work() if any(record.rivals for record in records.values()) else ()
        for id, job in mine.items():
            if id not in records:
                await self._miss(job)
            elif records[id] not in moved:
                self._compare(records[id], job, live)

    def _next_page(self) -> list[str]:
        ids = list(self._declared)
        page = ids[self._place : self._place + PAGE]
        self._place = 0 if self._place + PAGE >= len(ids) else self._place + PAGE
        return page

    def _is_anothers(self, record: JobRecord, job: Job) -> bool:
        origin = self._origin(job)
        return record.source == "code" and origin is not None and origin.differs_from(record.origin)

    async def _ask_for(self, records: Sequence[JobRecord], mine: Mapping[str, Job]) -> None:
        """They were defined by code from elsewhere. If no replica of that is left they are ours now."""
        answers = await self._put([mine[record.id] for record in records])
        for record, answer in zip(records, answers, strict=True):
            if not answer.refused:
                self._disputed.discard(record.id)
                self._reported.pop(record.id, None)
                origin = self._origin(mine[record.id])
                self.replica.emit("job.moved", detail=f"{record.id}: from {record.origin} to {origin}")

    def _compare(self, record: JobRecord, job: Job, live: Collection[str]) -> None:
        id = job.id
        rival = next((each for each in record.rivals if each.replica in live), None)
        if record.source == "api" and record.fingerprint != job.fingerprint:
            self._report_refused(JobPut(id, "made by hand"))
        elif rival is not None:
            self._report_conflict(id, record.origin, rival.origin)
        else:
            self._disputed.discard(id)
            if record.fingerprint == job.fingerprint:
                self._reported.pop(id, None)

    async def _miss(self, job: Job) -> None:
        """A job that a person removed stays so until the next start. A replica that read another file may have taken
        it for abandoned at the moment in which this one joined."""
        self._disputed.discard(job.id)
        history = await self.replica.store.history(job.id)
        last = history[-1] if history else None
        was_deleted = last is not None and (last.kind, last.note) == ("removed", DELETED)
        # It was never stored, because a job that it follows could not be read.
        never_stored = last is None and job.id in self._unread
        if (was_deleted or never_stored) and job.id in self._declared:
            self.add([self._declared.pop(job.id)])

    async def _at_work(self) -> frozenset[str]:
        roster = await self.replica.store.roster()
        return frozenset(
            each.id for each in roster.replicas if each.id not in roster.overdue and not each.draining
        )

    # --- jobs that the file has lost ----------------------------------------------------------------------

    async def _remove_deleted(self) -> None:
        """What this file declared once, and no live replica does any more."""
        if self._file is None:
            return
        store = self.replica.store
        if self._left is None:
            self._left = {record.id for record in await store.jobs() if self._is_left(record)}
        for id in sorted(self._left)[:PAGE]:
            change = ChangeJob(id, "remove", DELETED, self.replica.id, if_undeclared=True)
            if await store.change_job(change) is not None:
                self._left.discard(id)
                self.replica.emit("job.removed", detail=f"{id}: {DELETED} {self._file}")

    def _is_left(self, record: JobRecord) -> bool:
        origin = record.origin
        return (
            record.source == "code"
            and origin is not None
            and bool(origin.command)
            and origin.file == self._file
            and record.id not in self._declared
        )

    # --- saying so, once ------------------------------------------------------------------------------------

    def _report_refused(self, answer: JobPut) -> None:
        if self._reported.get(answer.job_id) != answer.outcome:
            self._reported[answer.job_id] = answer.outcome
            why = REASONS.get(answer.outcome, answer.outcome)
            if answer.outcome == "unreadable" and answer.detail:
                why = UNREAD_PARENT.format(answer.detail)
            if answer.outcome == "cycle":
                why = CIRCLE.format(answer.detail)
            self.replica.emit("job.refused", detail=f"{answer.job_id}: {answer.outcome}: {why}")

    def _report_conflict(self, id: str, here: Origin | None, there: Origin | None) -> None:
        """`here`: of the definition that this replica's side declares."""
        key = f"conflict with {there.key if there else ''}"
        if self._reported.get(id) != key:
            self._reported[id] = key
            self.replica.emit(
                "job.conflict",
                detail=(
                    f"{id}: two applications declare it, here from {here}, elsewhere from {there}. They share its "
                    "fires, and the schedule of the first one holds. Give each application a namespace of its own "
                    "(FENCEPOST_NAMESPACE), or one of the jobs another id=. If a deploy has moved the job, the new "
                    "code takes over when the last old replica has stopped"
                ),
            )
