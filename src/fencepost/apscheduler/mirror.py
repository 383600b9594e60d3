"""Carries to the store what becomes of the scheduler's jobs: defined, paused, resumed, removed, wanted at once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol

from fencepost.apscheduler.calls import function_of, is_marked, task_of
from fencepost.apscheduler.registry import Guarded, GuardedJobs
from fencepost.apscheduler.wishes import (
    Conclude,
    Define,
    Forget,
    Pause,
    Remove,
    Resume,
    RunAt,
    Wish,
    put_off_note,
    put_off_until,
)
from fencepost.model import Job, JobRecord, fire_key, manual_key
from fencepost.model.triggers import ONE_MICROSECOND
from fencepost.replica.origins import origin_of
from fencepost.replica.replica import Replica
from fencepost.replica.service import Service
from fencepost.store.base import ChangeJob, FireQuery, JobPut, NewFire, PutJob

log = logging.getLogger("fencepost")

BATCH = 500
FOLLOWED = 100
"""Jobs that are compared with the store at once: a process with thousands of them must not read all the time."""
SOONEST_CHECK = 1.0
"""Least seconds between two checks, however often other processes change something."""
MADE_UP_FOR = timedelta(days=1)
"""A `next_run_time` that has passed by more while no process lived is not made up for."""
STARTED = timedelta(seconds=5)
"""How long a job is kept that ran as all workers started: one that is still about to put it must find it."""


class Keeper(Protocol):
    """The keeper of the scheduler's jobs. Called on the control thread."""

    def defined(self, guarded: Sequence[Guarded]) -> None:
        """The store has taken these, or they have changed there."""

    def ran_out(self, guarded: Guarded, moment: datetime) -> None:
        """A job that runs once is decided: it is due no more."""

    def removed_elsewhere(self, guarded: Guarded) -> None:
        """By another process, or by hand."""


class JobMirror(Service):
    """Wishes are granted in the order in which they were made. While the store does not answer they wait. In between
    the jobs are compared with the store: what was changed in one process holds for all."""

    def __init__(self, registry: GuardedJobs, wishes: deque[Wish], keeper: Keeper, replica: Replica) -> None:
        """`wishes` is filled by other threads."""
        super().__init__(replica)
        self._registry = registry
        self._wishes = wishes
        self._keeper = keeper
        self._all_granted = asyncio.Event()
        self._checked = float("-inf")
        self._turn = 0
        self._put_off: dict[str, datetime] = {}
        """Next runs that were set by hand, and that this process will ask for."""

    async def step(self) -> float | None:
        if not self.replica.heartbeat.has_joined:
            return None
        while self._wishes:
            self._all_granted.clear()
            defines = self._leading_defines()
            follow_up: list[Wish] = []
            if defines:
                follow_up = await self._define(defines)
            else:
                await self._grant(self._wishes[0])
            for _ in range(len(defines) or 1):
                self._wishes.popleft()
            self._wishes.extendleft(reversed(follow_up))  # before what was wished for meanwhile
            self.replica.wake_all()  # there may be something to plan, or to claim
        self._all_granted.set()
        return await self._follow()

    async def granted(self, seconds: float) -> None:
        """Until all wishes are granted, or so long."""
        if self._wishes:
            self._all_granted.clear()
            self.wake()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_granted.wait(), seconds)

    # --- what is wished for -----------------------------------------------------------------------------------

    def _leading_defines(self) -> list[Define]:
        """One of each job: the store keeps in mind what a definition has replaced."""
        leading: dict[str, Define] = {}
        for wish in islice(self._wishes, BATCH):
            if not isinstance(wish, Define) or wish.guarded.name in leading:
                break
            leading[wish.guarded.name] = wish
        return list(leading.values())

    async def _define(self, wishes: Sequence[Define]) -> list[Wish]:
        replica, latest = self.replica, {wish.guarded.name: wish for wish in wishes}
        for wish in latest.values():
            replica.registry.replace(task_of(wish.guarded, wish.guarded.job.func))
        self._tell_targets()
        known = {record.id: record for record in await replica.store.jobs(list(latest))}
        elsewhere = await self._known_elsewhere(latest.values(), known)
        puts, over = [], []
        for name, wish in latest.items():
            wish.guarded.offered_again = None
            if await self._is_over(wish, known.get(name), elsewhere):
                over.append(wish.guarded)
            elif name in elsewhere and wish.was_replaced(known.get(name)):
                self._offer_again(wish.guarded)
            elif not self._stands(wish, known.get(name)):
                # Workers that start together find nothing, and each puts its own: the first one's stands.
                first = wish.guarded.starting and self._due(wish.guarded) and name not in known
                put = self._put(wish.guarded, wish.definition(known.get(name)))
                puts.append(replace(put, replace=not first, chosen=wish.chosen))
        answers = {put.job_id: put for put in await replica.store.put_jobs(puts)}
        for wish in latest.values():
            wish.guarded.stored = wish.guarded.native  # also if it has been removed by now
        for record in await replica.store.jobs(list(latest)):
            self._learn(latest[record.id].guarded, record)
        self._keeper.defined([wish.guarded for wish in latest.values()])
        for guarded in over:
            self._ran_out(guarded)
        return [
            more
            for wish in wishes
            if (answer := answers.get(wish.guarded.name))
            for more in self._follow_up(wish, answer)
        ]

    def _put(self, guarded: Guarded, job: Job) -> PutJob:
        settings = self.replica.settings
        return PutJob(
            job, settings.revision, self.replica.id, origin=origin_of(guarded.job.func, settings.origin)
        )

    def _follow_up(self, wish: Define, put: JobPut) -> Iterator[Wish]:
        if put.outcome == "exists":
            return
        if put.refused:
            self.replica.emit("job.refused", detail=f"{put.job_id}: {put.outcome}; it is offered again")
            self._offer_again(wish.guarded)
        elif wish.guarded.runs_once:
            return  # its date, or that it has none, is all there is to say
        elif put.outcome == "created" and wish.paused:
            yield Pause(put.job_id)
        elif put.outcome in ("created", "changed") and wish.first_at is not None:
            yield RunAt(wish.guarded, wish.first_at)

    def _offer_again(self, guarded: Guarded) -> None:
        """Once those who live have had the time to say that the present definition is theirs."""
        wait = 2 * self.replica.settings.heartbeat.total_seconds()
        guarded.offered_again = self.replica.clock.steady() + wait

    async def _known_elsewhere(
        self, wishes: Iterable[Define], known: Mapping[str, JobRecord]
    ) -> Mapping[str, datetime]:
        """The tasks of other live replicas, each with the time at which the first of them joined; asked for only where
        it matters."""
        if not any(
            each.guarded.starting or each.was_replaced(known.get(each.guarded.name)) for each in wishes
        ):
            return {}
        roster = await self.replica.store.roster()
        others = [each for each in roster.replicas if each.id not in (self.replica.id, *roster.overdue)]
        latest_first = sorted(others, key=lambda each: each.joined_at, reverse=True)
        return {target: each.joined_at for each in latest_first for target in each.targets}

    async def _is_over(
        self, wish: Define, record: JobRecord | None, elsewhere: Mapping[str, datetime]
    ) -> bool:
        """Every worker adds, as it starts, what shall run once and at once, each with its own idea of now. The first
        one has had it run. Its peers keep the task in mind as long as they live, so a worker that comes later can
        tell. Workers that start together know the task before one of them has defined the job: then nothing has
        become of it since the first of them joined."""
        guarded = wish.guarded
        if not (guarded.starting and guarded.runs_once and guarded.name in elsewhere and self._due(guarded)):
            return False
        if record is not None:
            return _decided(record)
        history = await self.replica.store.history(guarded.name)
        return bool(history) and history[-1].at >= elsewhere[guarded.name]

    def _stands(self, wish: Define, record: JobRecord | None) -> bool:
        """Whether the store has this date already, or that of a worker that started together with this one."""
        guarded = wish.guarded
        if record is None or not guarded.runs_once or record.job.trigger is None:
            return False
        if record.job.trigger == guarded.native.trigger:
            return wish.added_at is None
        due = record.job.trigger.next_after(self.replica.clock.wall()) is None
        return guarded.starting and due and self._due(guarded) and not _decided(record)

    def _due(self, guarded: Guarded) -> bool:
        return guarded.moment is not None and guarded.moment <= self.replica.clock.wall()

    async def _grant(self, wish: Wish) -> None:
        if isinstance(wish, Pause):
            await self._change(wish.name, "pause", "paused in APScheduler")
        elif isinstance(wish, Resume):
            await self._change(wish.name, "resume")
        elif isinstance(wish, Remove):
            await self._change(wish.name, "remove")
            self._drop(wish.name)
        elif isinstance(wish, Conclude):
            await self._conclude(wish.guarded, wish.moment)
        elif isinstance(wish, RunAt):
            await self._run_at(wish.guarded, wish.at, wish.expected)
        elif isinstance(wish, Forget):
            asyncio.get_running_loop().call_later(wish.after, self._forget, wish.guarded)

    async def _conclude(self, guarded: Guarded, moment: datetime) -> None:
        name = guarded.name
        fires = await self.replica.store.find_fires(FireQuery(key=fire_key(name, moment)))
        for record in await self.replica.store.jobs([name]):
            trigger = record.job.trigger
            if trigger is None or not _decided(record) or trigger.next_after(moment) is not None:
                continue  # it has another date now
            if not all(fire.state.final for fire in fires):
                return  # it runs, or may be given back
            if guarded.starting and self.replica.clock.wall() - record.changed_at < STARTED:
                return
            await self._change(name, "remove", version=record.version)
        self._registry.strike(guarded)
        if not guarded.starting and self._registry.named(name) is None:
            self._drop(name)

    async def _run_at(self, guarded: Guarded, at: datetime, expected: bool) -> None:
        if at > self.replica.clock.wall() and not expected:
            await self._change(guarded.name, "pause", put_off_note(at), at)
            self._expect(guarded, at)
            return
        records = await self.replica.store.jobs([guarded.name])
        put_off = [until for record in records for gap in record.pauses if (until := put_off_until(gap))]
        if expected and at not in put_off:
            return  # resumed, or put off to another time
        if any(until > self.replica.clock.wall() for until in put_off if until != at):
            await self._change(guarded.name, "resume")
        key = manual_key(guarded.name, f"at-{at:%Y%m%dT%H%M%S.%f}")
        await self.replica.store.add_fire(NewFire(key, guarded.name, by="APScheduler's next_run_time"))

    async def _change(
        self, name: str, kind: str, note: str = "", until: datetime | None = None, version: int | None = None
    ) -> None:
        change = ChangeJob(name, kind, note, self.replica.id, until, anew=True, version=version)  # type: ignore[arg-type]
        await self.replica.store.change_job(change)

    def _forget(self, guarded: Guarded) -> None:
        if self._registry.named(guarded.name) in (None, guarded) and not guarded.starting:
            self._registry.strike(guarded)
            self._drop(guarded.name)

    def _drop(self, name: str) -> None:
        self.replica.registry.drop(name)
        self._tell_targets()

    def _tell_targets(self) -> None:
        self.replica.targets_changed = True
        self.replica.heartbeat.wake()

    # --- what others have changed -----------------------------------------------------------------------------

    async def _follow(self) -> float:
        """Some jobs at a time; in how many seconds the next."""
        every, now = self.replica.settings.heartbeat.total_seconds(), self.replica.clock.steady()
        if (wait := self._checked + min(every, SOONEST_CHECK) - now) > 0:
            return wait
        self._checked = now
        jobs = self._registry.all()
        self._turn = self._turn if self._turn < len(jobs) else 0
        batch = jobs[self._turn : self._turn + FOLLOWED]
        self._turn += FOLLOWED
        records = {each.id: each for each in await self.replica.store.jobs([each.name for each in batch])}
        for guarded in batch:
            if guarded.stored is not None and self._registry.named(guarded.name) is guarded:
                await self._compare(guarded, records.get(guarded.name))
        return every

    async def _compare(self, guarded: Guarded, record: JobRecord | None) -> None:
        store = self.replica.store
        if record is None:
            history = await store.history(guarded.name)
            if not history or history[-1].kind != "removed":
                self._wish_again(Define(guarded))  # the store has forgotten it
            elif guarded.runs_once and guarded.moment is not None and guarded.ran_out:
                await self._conclude(guarded, guarded.moment)
            elif guarded.runs_once and guarded.moment is not None:
                self._ran_out(guarded)
            else:
                self._keeper.removed_elsewhere(guarded)
            return
        if guarded.offered_again is not None:
            if self.replica.clock.steady() >= guarded.offered_again:
                [put] = await store.put_jobs([self._put(guarded, guarded.native)])
                if put.refused:
                    self._offer_again(guarded)
                else:
                    self._wish_again(Define(guarded))
        elif guarded.stored is not None and record.fingerprint != guarded.stored.fingerprint:
            replaced = guarded.native.fingerprint in record.earlier
            if guarded.shared or is_marked(record.job) or not replaced:
                # Changed by another process. It counts as ours, too: one that starts with the definition of its code
                # must not undo it as long as one of us lives.
                await store.put_jobs([replace(self._put(guarded, record.job), replace=False)])
            else:  # by other code, that of a deploy perhaps: should it be rolled back, ours holds again
                self._offer_again(guarded)
        changed = guarded.stored is None or record.fingerprint != guarded.stored.fingerprint
        self._learn(guarded, record)
        if changed:
            self._know_function(guarded, record.job)
            self._keeper.defined([guarded])
        if guarded.moment is not None and self._due(guarded) and _decided(record):
            if guarded.ran_out:
                await self._conclude(guarded, guarded.moment)
            self._ran_out(guarded)

    def _know_function(self, guarded: Guarded, definition: Job) -> None:
        """Another process may have given the job another function, or taken it back."""
        function = function_of(guarded, definition, self._registry)
        if function is None and guarded.name in self.replica.registry:
            log.warning(
                "job %s runs %s since another process changed it; this process has scheduled nothing from that module, "
                "so it leaves the job to others",
                guarded.name,
                definition.args.get("func"),
            )
            self._drop(guarded.name)
        elif function is not None:
            self.replica.registry.replace(task_of(guarded, function))
            self._tell_targets()

    def _learn(self, guarded: Guarded, record: JobRecord) -> None:
        guarded.stored = record.job
        if record.segments:
            guarded.calendar = record.segments[-1].trigger
        elif guarded.runs_once:
            guarded.calendar = record.job.trigger
        guarded.put_off = None
        for gap in record.pauses:
            if (at := put_off_until(gap)) is not None:
                guarded.put_off = at
                self._expect(guarded, at)

    def _ran_out(self, guarded: Guarded) -> None:
        if guarded.moment is not None and not guarded.ran_out:
            self._keeper.ran_out(guarded, guarded.moment)

    def _expect(self, guarded: Guarded, at: datetime) -> None:
        """Ask for the run at this time, as every process does that knows of it: they ask for the same fire."""
        now = self.replica.clock.wall()
        if self._put_off.get(guarded.name) == at or now - at > MADE_UP_FOR:
            return
        self._put_off[guarded.name] = at
        if guarded.calendar is not None and guarded.calendar.next_after(at - ONE_MICROSECOND) == at:
            return  # the calendar has it
        wait = max(0.0, (at - now).total_seconds())
        asyncio.get_running_loop().call_later(wait, self._wish_again, RunAt(guarded, at, expected=True))

    def _wish_again(self, wish: Wish) -> None:
        self._wishes.append(wish)
        self.wake()


def _decided(record: JobRecord) -> bool:
    """Whether all fires of a job with dates are decided."""
    trigger, through = record.job.trigger, record.decided_through
    return trigger is not None and through is not None and trigger.next_after(through) is None
