"""The guarded jobs of one start of a scheduler: known in its job stores, mirrored in ours, and brought together."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from fencepost.apscheduler.calls import marked
from fencepost.apscheduler.host import ExecutorHost
from fencepost.apscheduler.job_stores import GuardedJobStore, is_shared
from fencepost.apscheduler.names import is_made_up
from fencepost.apscheduler.participant import Participant
from fencepost.apscheduler.registry import Guarded, GuardedJobs, Terms
from fencepost.apscheduler.wishes import AT_ONCE, KEPT_KNOWN, Conclude, Define, Forget, Wish
from fencepost.clock import SystemClock

log = logging.getLogger("fencepost")

STARTING = 5.0
"""Seconds after the start in which a job is added by every worker alike, as far as a process can know."""


class JobKeeper:
    """Made at each start: the one before may still be leaving, with what it had. Called on the scheduler's
    own threads and, where a comment says so, on the control thread."""

    def __init__(self, scheduler: Any, native: Participant, terms: Terms) -> None:
        self.scheduler = scheduler
        self._native = native
        self.registry = GuardedJobs(terms)
        self.wishes: deque[Wish] = deque()
        self.host = ExecutorHost(scheduler, self.registry, self.handing_over)
        self._clock = SystemClock()
        self._started_at = float("-inf")
        self._process: int | None = None
        self._began: set[str] = set()
        """Jobs that run once and were added while this process started."""

    def start(self) -> None:
        self._process = os.getpid()
        self._started_at = self._clock.steady()

    @property
    def is_starting(self) -> bool:
        """Also as long as it has not been started."""
        return self._process is None or self._clock.steady() - self._started_at < STARTING

    # --- what the application does ----------------------------------------------------------------------------

    def drafted(self, job: Any, alias: str, being_added: bool = False) -> Guarded | None:
        shared = is_shared(self.scheduler._jobstores.get(alias))
        return self.registry.drafted(job, alias, shared, being_added=being_added)

    def prepared(self, job: Any, alias: str) -> Guarded | None:
        """Before a job is added: what it will be on the registry."""
        guarded = self.drafted(job, alias, being_added=True)
        if guarded is not None and guarded.runs_once and not is_made_up(job.id) and self.is_starting:
            return self._added_by_all(guarded)
        return guarded

    def added(self, guarded: Guarded, first_at: datetime | None, paused: bool) -> None:
        chosen = not self.is_starting
        if chosen and not guarded.shared:
            guarded.native = marked(guarded.native)
        self.registry.enter(guarded)
        self.wish(Define(guarded, first_at, paused, self._clock.wall(), chosen=chosen))

    def changed(self, before: Guarded, guarded: Guarded) -> None:
        if not guarded.shared:
            guarded.native = marked(guarded.native)
        self.registry.enter(guarded)
        self.wish(Define(guarded, added_at=self._clock.wall(), base=before.native, chosen=True))

    def found(self, job: Any, alias: str) -> None:
        """In a job store, when the scheduler was guarded while it ran."""
        if (guarded := self.drafted(job, alias)) is not None:
            self._enter(guarded, paused=job.next_run_time is None)

    def wish(self, wish: Wish) -> None:
        if self._process is not None and self._process != os.getpid():
            log.error(
                "the guarded scheduler was started before a fork: nothing runs here; start it in the child"
            )
        self.wishes.append(wish)
        self._native.wake_mirror()

    def _enter(self, guarded: Guarded, paused: bool) -> None:
        self.registry.enter(guarded)
        self.wish(Define(guarded, paused=paused))

    def _added_by_all(self, guarded: Guarded) -> Guarded:
        """Every worker adds this job as it starts, perhaps with its own idea of now. In a shared job store the date of
        the first one stands, if it is due and has not been run yet."""
        guarded.starting = True
        self._began.add(guarded.name)
        now, moment = self._clock.wall(), guarded.moment
        there = self._store_of(guarded).lookup_job(guarded.job.id) if guarded.shared else None
        if there is None or moment is None or there.next_run_time is None:
            return guarded
        if now - AT_ONCE < there.next_run_time < moment <= now:
            guarded.job._modify(next_run_time=there.next_run_time)
            again = self.drafted(guarded.job, guarded.alias, being_added=True)
            assert again is not None
            again.starting = True
            return again
        return guarded

    # --- what the job stores show -----------------------------------------------------------------------------

    def known(self, job: Any, alias: str, reread: bool = False) -> Guarded | None:
        """The entry of the job; entered, if another process has put it into the job store. None: not
        guarded."""
        guarded = self.registry.of(alias, job.id)
        if guarded is not None and not reread:
            return guarded
        drafted = self.drafted(job, alias)
        if drafted is None:
            return None
        if drafted.name in self._began and self._is_fresh(drafted):
            return guarded or drafted  # the process that has just added it decides whether it runs once more
        if guarded is None or guarded.native != drafted.native:
            self._enter(drafted, paused=job.next_run_time is None)
        else:
            self.registry.renew(guarded, job)
        return drafted

    def over(self, guarded: Guarded) -> None:
        """Its calendar has ended. It stays known for a while: the last fire may not be claimed yet."""
        self.wish(Forget(guarded, KEPT_KNOWN))

    def gone(self, guarded: Guarded) -> None:
        """Another process has removed it from a shared job store."""
        self.wish(Forget(guarded))

    def handing_over(self, guarded: Guarded, due: datetime) -> None:
        """As under APScheduler alone a job that runs once leaves its job store when it is submitted: it may add itself
        anew."""
        if guarded.runs_once and guarded.moment == due:
            self._take_off(guarded, due)

    def _is_fresh(self, guarded: Guarded) -> bool:
        return guarded.moment is not None and self._clock.wall() - guarded.moment < AT_ONCE

    # --- called by the mirror, on the control thread ----------------------------------------------------------

    def defined(self, guarded: Sequence[Guarded]) -> None:
        """The store has taken these, and chosen anchors: show when they are next due."""
        self.host.soon(partial(self._show_next, guarded))

    def ran_out(self, guarded: Guarded, moment: datetime) -> None:
        """A job that runs once is decided, here or elsewhere."""
        guarded.ran_out = True

        def finish() -> None:
            self._take_off(guarded, moment)
            if guarded.own_moment is not None:  # of one that started later than the worker that had it run
                self._take_off(guarded, guarded.own_moment)
            # Only then: a row that is there and unknown would be defined again.
            self.wish(Conclude(guarded, moment))

        self.host.soon(finish)

    def removed_elsewhere(self, guarded: Guarded) -> None:
        """In a shared job store the row is gone, too, and that is noticed there."""
        if not guarded.shared:
            self.host.soon(partial(self._take_off, guarded, None))
        self.wish(Forget(guarded))

    def define_all_again(self) -> None:
        """The store has lost data."""
        for guarded in self.registry.all():
            self.wish(Define(guarded))

    # --- job stores -------------------------------------------------------------------------------------------

    def _store_of(self, guarded: Guarded) -> Any:
        return self.scheduler._jobstores.get(guarded.alias)

    def _take_off(self, guarded: Guarded, moment: datetime | None) -> None:
        self._in_store(guarded, lambda store: store.take_off(guarded.job.id, moment))

    def _show_next(self, guarded: Sequence[Guarded]) -> None:
        now = self._clock.wall()
        for each in guarded:
            self._in_store(each, partial(self._show_one, each, now))

    def _show_one(self, guarded: Guarded, now: datetime, store: GuardedJobStore) -> None:
        job = store.lookup_job(guarded.job.id)
        if job is None or self.registry.named(guarded.name) is not guarded:
            return
        if job.next_run_time is not None or guarded.runs_once:  # which another process may have resumed
            store.move_on(guarded, job, now)

    def _in_store(self, guarded: Guarded, do: Callable[[GuardedJobStore], None]) -> None:
        with self.scheduler._jobstores_lock:
            if (store := self._store_of(guarded)) is not None:
                do(GuardedJobStore.around(store))
