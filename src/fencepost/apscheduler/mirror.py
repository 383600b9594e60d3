"""Carries to the store what becomes of the scheduler's jobs: defined, paused, resumed, removed, wanted at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from apscheduler.util import iscoroutinefunction_partial

from fencepost.apscheduler.roll import Guarded, Roll
from fencepost.model import manual_key
from fencepost.origins import origin_of
from fencepost.replica import Replica
from fencepost.service import Service
from fencepost.store.base import ChangeJob, JobPut, NewFire, PutJob
from fencepost.tasks import Task
from fencepost.triggers import ONE_MICROSECOND

BATCH = 500
KEPT_KNOWN = 3600.0
"""Seconds for which a job that is over stays known here: its last fire may be claimed late."""


@dataclass(frozen=True)
class Define:
    guarded: Guarded
    first_at: datetime | None = None
    """If the definition is new, one run at this time beside those of the calendar."""
    paused: bool = False
    """If the definition is new it begins with a pause."""


@dataclass(frozen=True)
class Pause:
    name: str


@dataclass(frozen=True)
class Resume:
    name: str


@dataclass(frozen=True)
class Remove:
    name: str


@dataclass(frozen=True)
class RunAt:
    """One run beside those of the calendar; and none of those before."""

    guarded: Guarded
    at: datetime


@dataclass(frozen=True)
class Forget:
    """Not known to this replica any more, unless it has been defined anew; others may go on with it."""

    guarded: Guarded
    after: float = 0.0


Wish = Define | Pause | Resume | Remove | RunAt | Forget


class Mirror(Service):
    """Wishes are granted in the order in which they were made. While the store does not answer they wait."""

    def __init__(
        self,
        roll: Roll,
        wishes: deque[Wish],
        defined: Callable[[Sequence[Guarded]], None],
        replica: Replica,
    ) -> None:
        """`wishes` is filled by other threads. `defined` is told of definitions that the store has taken."""
        super().__init__(replica)
        self._roll = roll
        self._wishes = wishes
        self._defined = defined
        self._all_granted = asyncio.Event()

    async def step(self) -> float | None:
        if not self.replica.heart.has_joined:
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
        return None

    async def granted(self, seconds: float) -> None:
        """Until all wishes are granted, or so long."""
        self.wake()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_granted.wait(), seconds if self._wishes else 0)

    def _leading_defines(self) -> list[Define]:
        leading = []
        for wish in islice(self._wishes, BATCH):
            if not isinstance(wish, Define):
                break
            leading.append(wish)
        return leading

    async def _define(self, wishes: Sequence[Define]) -> list[Wish]:
        replica, guarded = self.replica, {wish.guarded.name: wish.guarded for wish in wishes}
        for each in guarded.values():
            replica.registry.replace(_task(each))
        self._tell_targets()
        puts = [
            PutJob(
                each.native,
                replica.settings.revision,
                replica.id,
                origin=origin_of(each.job.func, replica.settings.origin),
            )
            for each in guarded.values()
        ]
        answers = {put.job_id: put for put in await replica.store.put_jobs(puts)}
        for record in await replica.store.jobs(list(guarded)):
            if record.segments:
                guarded[record.id].calendar = record.segments[-1].trigger
        self._defined(list(guarded.values()))
        return [more for wish in wishes for more in self._follow_up(wish, answers[wish.guarded.name])]

    def _follow_up(self, wish: Define, put: JobPut) -> Iterator[Wish]:
        if put.refused:
            self.replica.tell("job.refused", detail=f"{put.job_id}: {put.outcome}")
        elif put.outcome == "created" and wish.paused:
            yield Pause(put.job_id)
        elif put.outcome in ("created", "changed") and wish.first_at is not None:
            yield RunAt(wish.guarded, wish.first_at)

    async def _grant(self, wish: Wish) -> None:
        if isinstance(wish, Pause):
            await self._change(wish.name, "pause", "paused in APScheduler")
        elif isinstance(wish, Resume):
            await self._change(wish.name, "resume")
        elif isinstance(wish, Remove):
            await self._change(wish.name, "remove")
            self._drop(wish.name)
        elif isinstance(wish, RunAt):
            await self._run_at(wish.guarded, wish.at)
        elif isinstance(wish, Forget):
            asyncio.get_running_loop().call_later(wish.after, self._forget, wish.guarded)

    async def _run_at(self, guarded: Guarded, at: datetime) -> None:
        wait = at - self.replica.clock.wall()
        if wait > timedelta(0):
            await self._change(guarded.name, "pause", f"next_run_time={at.isoformat()}", at)
            by_calendar = guarded.calendar and guarded.calendar.next_after(at - ONE_MICROSECOND) == at
            if not by_calendar:
                again = RunAt(guarded, at)
                asyncio.get_running_loop().call_later(wait.total_seconds(), self._wish_again, again)
            return
        key = manual_key(guarded.name, f"at-{at:%Y%m%dT%H%M%S.%f}")
        await self.replica.store.add_fire(NewFire(key, guarded.name, by="APScheduler's next_run_time"))

    async def _change(self, name: str, kind: str, note: str = "", until: datetime | None = None) -> None:
        change = ChangeJob(name, kind, note, self.replica.id, until, anew=True)  # type: ignore[arg-type]
        await self.replica.store.change_job(change)

    def _wish_again(self, wish: Wish) -> None:
        self._wishes.append(wish)
        self.wake()

    def _forget(self, guarded: Guarded) -> None:
        if self._roll.named(guarded.name) in (None, guarded):
            self._roll.strike(guarded)
            self._drop(guarded.name)

    def _drop(self, name: str) -> None:
        self.replica.registry.drop(name)
        self._tell_targets()

    def _tell_targets(self) -> None:
        self.replica.targets_changed = True
        self.replica.heart.wake()


def _task(guarded: Guarded) -> Task:
    function = guarded.job.func
    return Task(
        guarded.name, function, iscoroutinefunction_partial(function), None, frozenset(), frozenset(), False
    )
