"""One line for a scheduler that runs in every worker: `guard(scheduler, store="redis://…")`.

APScheduler goes on keeping the jobs and running them; when and where they run is decided by Fencepost. Each job of
the scheduler is mirrored as a job in the store; a replica plans, claims and settles its fires like any other; and a
claimed fire is handed to the job's executor. APScheduler's own timer submits no guarded job.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
from collections.abc import Collection
from datetime import timedelta
from functools import partial
from typing import Any

from apscheduler.events import (
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobExecutionEvent,
    JobSubmissionEvent,
)
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.schedulers.blocking import BlockingScheduler

from fencepost.apscheduler.host import ExecutorHost
from fencepost.apscheduler.job_stores import GuardedJobStore
from fencepost.apscheduler.keeper import JobKeeper
from fencepost.apscheduler.methods import Methods
from fencepost.apscheduler.mirror import JobMirror
from fencepost.apscheduler.participant import Participant
from fencepost.apscheduler.registry import GuardedJobs, Terms
from fencepost.errors import ConfigurationError, UsageError
from fencepost.model import MISFIRES, Reason, State
from fencepost.runs.events import Event
from fencepost.runs.threads import before_exit
from fencepost.scheduler.single_instance import SingleInstance
from fencepost.store.base import Store

log = logging.getLogger("fencepost")

PATIENCE = 6.0
"""Seconds for settling and leaving, after the drain limit."""
MOST_SLOTS = 10_000
"""The executors have limits of their own: `pools.py`."""

_FINAL = frozenset(state.value for state in State if state.final)


def guard(
    scheduler: Any,
    store: str | Store | None = None,
    *,
    execute_on: str | None = None,
    single_instance: bool | SingleInstance = False,
    misfire: str | None = None,
    unguarded: Collection[str] = (),
    namespace: str | None = None,
    slots: int | None = None,
    **settings: Any,
) -> Guard:
    """Have every fire of this APScheduler 3.x scheduler run once, however many processes run it.

    Before or after `scheduler.start()`; jobs may be added before and after. `store` is a URL or a store; without one
    `FENCEPOST_STORE` decides. `execute_on="leader"` runs all jobs on the leading process alone; `single_instance` does
    too, and refuses to start where several workers are declared. `misfire` says what becomes of late
    fires of all jobs (`"latest"`, `"all"`, `"skip"`); without it each job's own `misfire_grace_time` and `coalesce` do.
    `unguarded` names jobs that shall run in every process, as they did. `slots` and `settings` are Fencepost's; without
    `slots` there are as many as the executors have workers.
    """
    scheduler = _inner(scheduler)
    _check(scheduler, misfire, unguarded)
    with scheduler._jobstores_lock:  # one that runs already submits nothing meanwhile
        native = Participant(
            store,
            namespace,
            slots,
            execute_on=execute_on,
            single_instance=single_instance,
            defaults={"slots": MOST_SLOTS},
            **settings,
        )
        return Guard(scheduler, native, misfire, unguarded)


class Guard:
    """What `guard` returns: the way to drain in good time, and to Fencepost's own scheduler."""

    def __init__(
        self, scheduler: Any, native: Participant, misfire: str | None, unguarded: Collection[str]
    ) -> None:
        self.scheduler = scheduler
        self.native = native
        """Fencepost's scheduler: `trigger`, `pause`, `resume`, `cancel`, `sync`, `asgi`."""
        self.native.events.subscribe(self._on_event)
        _ = self.native.store  # a URL that cannot work is said here, not when the first fire is due
        self._misfire, self._unguarded = misfire, frozenset(unguarded)
        self._leaving: concurrent.futures.Future[None] | None = None
        self._process: int | None = None
        self._woken = False
        self.keeper = self._new_keeper()
        for job, alias, _ in scheduler._pending_jobs:
            self.keeper.drafted(job, alias, being_added=True)  # raises if it cannot be guarded
        if scheduler.running:
            self.native.check_gate()
        Methods(self)
        before_exit(self._at_exit)
        if scheduler.running:
            self._join_running()

    @property
    def registry(self) -> GuardedJobs:
        """The guarded jobs."""
        return self.keeper.registry

    @property
    def host(self) -> ExecutorHost:
        return self.keeper.host

    async def drain(self) -> None:
        """Claim no more, hand leadership over, and wait for what runs, up to the drain limit. For applications on an
        event loop, before `scheduler.shutdown()`, which cannot wait there."""
        await asyncio.wrap_future(self.begin_to_leave())

    @property
    def check_every(self) -> timedelta:
        """How often shared job stores are searched for what other processes have put there."""
        return self.native.settings.heartbeat

    def __repr__(self) -> str:
        return f"<Guard of {len(self.registry.all())} jobs on {self.native.store_name}>"

    # --- taking part ------------------------------------------------------------------------------------------

    def take_part(self) -> None:
        # The keeper before may still be leaving: this start has parts of its own.
        self._leaving = None
        self._woken = False
        self._process = os.getpid()
        keeper = self.keeper = self._new_keeper()
        keeper.start()
        self.guard_job_stores()
        joined = self.native.take_part(
            keeper.host, partial(JobMirror, keeper.registry, keeper.wishes, keeper)
        )
        joined.add_done_callback(_say_failure)

    def begin_to_leave(self) -> concurrent.futures.Future[None]:
        if self._leaving is None:
            self.host.close()
            self._leaving = self.native.depart()
        return self._leaving

    def finish_leaving(self, leaving: concurrent.futures.Future[None]) -> None:
        try:
            leaving.result(self.native.settings.drain_timeout.total_seconds() + PATIENCE)
        except Exception:
            log.exception("the guard could not leave in good order; its presence expires by itself")
        self.native.end()
        self._leaving = self._process = None

    def hand_over(self) -> None:
        """On the scheduler's own thread: what was claimed goes to the executors."""
        self.host.hand_over()
        if not self._woken:
            self._woken = True
            self.native.wake_worker()

    def guard_job_stores(self) -> None:
        for alias, store in self.scheduler._jobstores.items():
            if not GuardedJobStore.is_on(store):
                GuardedJobStore(self, alias, store)

    def _join_running(self) -> None:
        self.take_part()
        for alias, store in self.scheduler._jobstores.items():
            for job in store.get_all_jobs():
                self.keeper.found(job, alias)
        self.scheduler.wakeup()

    def _new_keeper(self) -> JobKeeper:
        """The scheduler may be configured after it was guarded, so its defaults are read at each start."""
        defaults = self.scheduler._job_defaults
        terms = Terms(self.native.settings.execute_on, self._misfire, self._unguarded, defaults)
        return JobKeeper(self.scheduler, self.native, terms)

    def _at_exit(self) -> None:
        """Also without a call of `shutdown`: leadership is handed over, and what has ended is settled."""
        if self._process == os.getpid():
            leaving = self.begin_to_leave()
            self.host.abandon()
            self.finish_leaving(leaving)

    # --- called by the replica, on the control thread ---------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        keeper = self.keeper
        if event.kind == "store.lost_data":
            keeper.define_all_again()
        fire = event.fire
        guarded = None if fire is None else keeper.registry.named(fire.job_id)
        if fire is None or guarded is None:
            return
        job, alias = guarded.job, guarded.alias
        due = fire.due_at.astimezone(self.scheduler.timezone)
        if event.kind == State.MISSED:
            missed = JobExecutionEvent(EVENT_JOB_MISSED, job.id, alias, due)
            keeper.host.soon(partial(self.scheduler._dispatch_event, missed))
        elif event.kind == State.SKIPPED and fire.reason == Reason.OVERLAP:
            full = JobSubmissionEvent(EVENT_JOB_MAX_INSTANCES, job.id, alias, [due])
            keeper.host.soon(partial(self.scheduler._dispatch_event, full))
        if guarded.runs_once and guarded.moment == fire.due_at and event.kind in _FINAL:
            keeper.ran_out(guarded, fire.due_at)


def _inner(scheduler: Any) -> Any:
    """Extensions such as Flask-APScheduler keep APScheduler's scheduler as their `scheduler`."""
    within = getattr(scheduler, "scheduler", None)
    return within if isinstance(within, BaseScheduler) else scheduler


def _check(scheduler: Any, misfire: str | None, unguarded: Collection[str]) -> None:
    bases = [base.__name__ for base in type(scheduler).__mro__]
    if not isinstance(scheduler, AsyncIOScheduler | BlockingScheduler) or "GeventScheduler" in bases:
        raise ConfigurationError(
            f"{type(scheduler).__name__} cannot be guarded; use APScheduler 3.x with its AsyncIOScheduler, "
            "BackgroundScheduler or BlockingScheduler"
        )
    if Methods.are_on(scheduler):
        raise UsageError("this scheduler is guarded already; call guard() once")
    if misfire not in (None, *MISFIRES):
        raise ConfigurationError(f"misfire={misfire!r} is not known; use one of {', '.join(MISFIRES)}")
    if isinstance(unguarded, str):
        raise ConfigurationError(f"unguarded={unguarded!r}: give a list of job ids, as [{unguarded!r}]")


def _say_failure(ready: concurrent.futures.Future[None]) -> None:
    if not ready.cancelled() and (error := ready.exception()) is not None:
        log.error("the guard could not take part, so no guarded job runs: %s", error, exc_info=error)
