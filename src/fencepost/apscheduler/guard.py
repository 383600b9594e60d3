"""One line for a scheduler that runs in every worker: `guard(scheduler, store="redis://…")`.

APScheduler goes on keeping the jobs and running them; when and where they run is decided by Fencepost. Each job of
the scheduler is mirrored as a job in the store; a replica plans, claims and settles its fires like any other; and a
claimed fire is handed to the job's executor. APScheduler's own timer submits no guarded job.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from apscheduler.events import (
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobExecutionEvent,
    JobSubmissionEvent,
)
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.base import STATE_STOPPED, BaseScheduler
from apscheduler.schedulers.blocking import BlockingScheduler

from fencepost.apscheduler.host import UNLIMITED, ExecutorHost, capacity
from fencepost.apscheduler.mirror import AT_ONCE, Mirror
from fencepost.apscheduler.names import is_made_up
from fencepost.apscheduler.participant import Participant
from fencepost.apscheduler.roll import Guarded, Roll, Terms
from fencepost.apscheduler.shelves import Shelf, is_shared
from fencepost.apscheduler.wishes import (
    KEPT_KNOWN,
    Conclude,
    Define,
    Forget,
    Pause,
    Remove,
    Resume,
    RunAt,
    Wish,
)
from fencepost.clock import SystemClock
from fencepost.errors import ConfigurationError, UsageError
from fencepost.events import Event
from fencepost.gate import SingleInstance
from fencepost.model import MISFIRES, Reason, State
from fencepost.recurring import RecurringErrors
from fencepost.store.base import Store

log = logging.getLogger("fencepost")

GOOD_BYE = 2.0
"""Seconds for which leaving may hold up the event loop of an application that ends."""
PATIENCE = 6.0
"""Seconds for settling and leaving, after the drain limit."""
STARTING = 5.0
"""Seconds after the start in which a job is added by every worker alike, as far as anybody can tell."""
TRIES = 5
"""How often a job is added to a job store in which other processes add and remove it, too."""

_before_exit: Callable[[Callable[[], None]], Any] = getattr(threading, "_register_atexit", atexit.register)
"""By the time of `atexit` all thread pools are shut down, those of jobs and of stores among them. This is how they
get there in time themselves; the last to register is the first to be called."""

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
    too, and refuses to start where several workers are declared (see `gate.py`). `misfire` says what becomes of late
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
            defaults={"slots": _slots(scheduler)},
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
        self.roll = Roll(self._terms())
        self.wishes: deque[Wish] = deque()
        self.host: ExecutorHost | None = None
        self._leaving: concurrent.futures.Future[None] | None = None
        self._process: int | None = None
        self._resuming: int | None = None
        """The thread that resumes a job at this moment."""
        self._woken = False
        self._clock = SystemClock()
        self._started_at = float("-inf")
        self._began: set[str] = set()
        """Jobs that run once and were added while this process started."""
        self._check_pending()
        self._errors = RecurringErrors(log)
        if scheduler.running:
            self.native.check_gate()
        self._stock: dict[str, Callable[..., Any]] = {}
        for name, method in self._replacements().items():
            self._stock[name] = getattr(scheduler, name)
            setattr(scheduler, name, method)
        _before_exit(self._at_exit)
        if scheduler.running:
            self._join_running()

    def _terms(self) -> Terms:
        """The scheduler may be configured after it was guarded."""
        defaults = self.scheduler._job_defaults
        return Terms(self.native.settings.execute_on, self._misfire, self._unguarded, defaults)

    async def drain(self) -> None:
        """Claim no more, hand leadership over, and wait for what runs, up to the drain limit. For applications on an
        event loop, before `scheduler.shutdown()`, which cannot wait there."""
        await asyncio.wrap_future(self._begin_to_leave())

    @property
    def look_every(self) -> timedelta:
        """How often shared job stores are searched for what other processes have put there."""
        return self.native.settings.heartbeat

    def __repr__(self) -> str:
        return f"<Guard of {len(self.roll.all())} jobs on {self.native.store_name}>"

    # --- the scheduler's methods, replaced ------------------------------------------------------------------

    def _replacements(self) -> dict[str, Callable[..., Any]]:
        return {
            "start": self._start,
            "resume": self._resume,
            "shutdown": self._shutdown,
            "_process_jobs": self._process_jobs,
            "_real_add_job": self._add_job,
            "modify_job": self._modify_job,
            "resume_job": self._resume_job,
            "remove_job": self._remove_job,
            "remove_all_jobs": self._remove_all_jobs,
            "add_jobstore": self._add_jobstore,
        }

    def _start(self, *args: Any, **options: Any) -> Any:
        if self.scheduler.state != STATE_STOPPED:
            return self._stock["start"](*args, **options)  # says so
        self.native.check_gate()
        self._take_part()
        try:
            return self._stock["start"](*args, **options)  # of a blocking scheduler: until it is shut down
        except BaseException:
            self._begin_to_leave()
            raise

    def _resume(self) -> None:
        self._stock["resume"]()
        self.native.wake_worker()

    def _shutdown(self, wait: bool = True) -> None:
        if self.scheduler.state != STATE_STOPPED:
            leaving = self._begin_to_leave()
            if wait and not isinstance(self.scheduler, AsyncIOScheduler):
                self._finish_leaving(leaving)
            elif wait and not self.native.is_running_jobs:
                # What runs needs this event loop to end, but saying good-bye does not. It cannot wait for the end of
                # the process: uvicorn's workers kill themselves as soon as their lifespan is over.
                concurrent.futures.wait([leaving], GOOD_BYE)
        self._stock["shutdown"](wait)

    def _process_jobs(self) -> float | None:
        """Called on the scheduler's thread or loop whenever it is woken, and when a job is due by its own reckoning."""
        if self.host is not None:
            self.host.hand_over()
        if not self._woken:
            self._woken = True
            self.native.wake_worker()
        try:
            wait: float | None = self._stock["_process_jobs"]()
        except (
            Exception
        ) as error:  # of a job store, where APScheduler does not expect it: its thread would end
            self._errors.log("APScheduler could not look for due jobs; it tries again", error)
            return float(self.scheduler.jobstore_retry_interval)
        if any(is_shared(store) for store in self.scheduler._jobstores.values()):
            longest = self.look_every.total_seconds()
            return longest if wait is None else min(wait, longest)
        return wait

    def _add_job(self, job: Any, alias: str, replace_existing: bool) -> None:
        shared = is_shared(self.scheduler._lookup_jobstore(alias))
        guarded = self.roll.drafted(job, alias, shared, being_added=True)
        if guarded is not None and guarded.runs_once and not is_made_up(job.id) and self._is_starting():
            guarded = self._added_by_all(guarded, shared)
        given: datetime | None = getattr(job, "next_run_time", None)
        paused = hasattr(job, "next_run_time") and given is None
        self._add_for_sure(job, alias, replace_existing)
        if guarded is not None:
            self._enter(guarded, given, paused, added_at=self._clock.wall(), chosen=not self._is_starting())

    def _add_for_sure(self, job: Any, alias: str, replace_existing: bool) -> None:
        """Between finding that a shared job store has the job and replacing it, another process may remove it."""
        for attempt in range(TRIES):
            try:
                self._stock["_real_add_job"](job, alias, replace_existing)
                return
            except JobLookupError:
                if attempt == TRIES - 1:
                    raise

    def _is_starting(self) -> bool:
        started = self._clock.steady() - self._started_at < STARTING
        return started or self.scheduler.state == STATE_STOPPED

    def _added_by_all(self, guarded: Guarded, shared: bool) -> Guarded:
        """Every worker adds this job as it starts, perhaps with its own idea of now. In a shared job store the date of
        the first one stands, if it is due and has not been run yet."""
        guarded.starting = True
        self._began.add(guarded.name)
        now, moment = self._clock.wall(), guarded.moment
        there = self._store_of(guarded).lookup_job(guarded.job.id) if shared else None
        if there is None or moment is None or there.next_run_time is None:
            return guarded
        if now - AT_ONCE < there.next_run_time < moment <= now:
            guarded.job._modify(next_run_time=there.next_run_time)
            again = self.roll.drafted(guarded.job, guarded.alias, shared, being_added=True)
            assert again is not None
            again.starting = True
            return again
        return guarded

    def _modify_job(self, job_id: str, jobstore: str | None = None, **changes: Any) -> Any:
        if not self.scheduler.running:
            return self._stock["modify_job"](job_id, jobstore, **changes)
        with self.scheduler._jobstores_lock:
            job, alias = self.scheduler._lookup_job(job_id, jobstore)
            guarded = self.roll.of(alias, job_id)
            if guarded is not None and "trigger" in changes:
                self._check_trigger(job, alias, changes["trigger"])
            was_paused = job.next_run_time is None
        job = self._stock["modify_job"](job_id, jobstore, **changes)
        if guarded is not None:
            self._mirror_changes(guarded, job, changes, was_paused)
        return job

    def _mirror_changes(self, guarded: Guarded, job: Any, changes: dict[str, Any], was_paused: bool) -> None:
        name = guarded.name
        redrafted = self.roll.drafted(job, guarded.alias, is_shared(self._store_of(guarded)))
        assert redrafted is not None
        if changes.keys() - {"next_run_time", "name"} or redrafted.native != guarded.native:
            self._enter(redrafted, added_at=self._clock.wall(), chosen=True)
        if "next_run_time" not in changes or redrafted.runs_once:
            return  # when a job runs once is its definition
        if job.next_run_time is None:
            self.wish(Pause(name))
            return
        resuming = self._resuming == threading.get_ident()
        if was_paused or resuming or "trigger" in changes:
            self.wish(Resume(name))
        if not resuming and "trigger" not in changes:
            self.wish(RunAt(redrafted, job.next_run_time))

    def _resume_job(self, job_id: str, jobstore: str | None = None) -> Any:
        with self.scheduler._jobstores_lock:
            self._resuming = threading.get_ident()
            try:
                return self._stock["resume_job"](job_id, jobstore)
            finally:
                self._resuming = None

    def _remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        doomed = [each for each in self._on_shelves(jobstore) if each.job.id == job_id]
        self._stock["remove_job"](job_id, jobstore)
        self._removed(doomed)

    def _remove_all_jobs(self, jobstore: str | None = None) -> None:
        doomed = self._on_shelves(jobstore)
        self._stock["remove_all_jobs"](jobstore)
        self._removed(doomed)

    def _on_shelves(self, jobstore: str | None) -> list[Guarded]:
        return self.roll.all(jobstore) if self.scheduler.running else []

    def _removed(self, doomed: Sequence[Guarded]) -> None:
        for guarded in doomed:
            self.roll.strike(guarded)
            self.wish(Remove(guarded.name))

    def _add_jobstore(self, *args: Any, **options: Any) -> None:
        with self.scheduler._jobstores_lock:
            self._stock["add_jobstore"](*args, **options)
            self._shelve()

    # --- the roll -------------------------------------------------------------------------------------------

    def known(self, job: Any, alias: str, shared: bool, look: bool = False) -> Guarded | None:
        """The job as it is on the roll; entered, if somebody else has put it on the shelf. None: not guarded."""
        guarded = self.roll.of(alias, job.id)
        if guarded is not None and not look:
            return guarded
        drafted = self.roll.drafted(job, alias, shared)
        if drafted is None:
            return None
        if drafted.name in self._began and self._is_fresh(drafted):
            return guarded or drafted  # whoever has just put it there says whether it is to run once more
        if guarded is None or guarded.native != drafted.native:
            self._enter(drafted, paused=job.next_run_time is None)
        else:
            guarded.job = job  # its arguments may be others
        return drafted

    def over(self, guarded: Guarded) -> None:
        """Its calendar has ended. It stays known for a while: the last fire may not be claimed yet."""
        self.wish(Forget(guarded, KEPT_KNOWN))

    def gone(self, guarded: Guarded) -> None:
        """Another process has taken it off a shared shelf."""
        self.wish(Forget(guarded))

    def defined(self, guarded: Sequence[Guarded]) -> None:
        """The store has taken these, and chosen anchors: show when they are next due."""
        self._soon(partial(self._show_next, guarded))

    def ran_out(self, guarded: Guarded, moment: datetime) -> None:
        """A job that runs once is decided, here or elsewhere."""
        guarded.ran_out = True

        def finish() -> None:
            self._take_off(guarded, moment)
            self.wish(
                Conclude(guarded, moment)
            )  # only then: a row that is there and unknown would be defined anew

        self._soon(finish)

    def removed_elsewhere(self, guarded: Guarded) -> None:
        """In a shared job store the row is gone, too, and that is noticed there."""
        if not is_shared(self._store_of(guarded)):
            self._soon(partial(self._take_off, guarded, None))
        self.wish(Forget(guarded))

    def handing_over(self, guarded: Guarded, due: datetime) -> None:
        """On the scheduler's thread. As under APScheduler alone a job that runs once leaves its job store when it is
        submitted: it may add itself anew."""
        if guarded.runs_once and guarded.moment == due:
            self._take_off(guarded, due)

    def _soon(self, errand: Callable[[], None]) -> None:
        if self.host is not None:
            self.host.soon(errand)

    def _take_off(self, guarded: Guarded, moment: datetime | None) -> None:
        with self.scheduler._jobstores_lock:
            if guarded.alias in self.scheduler._jobstores:
                self._shelf(guarded.alias).take_off(guarded.job.id, moment)

    def _is_fresh(self, guarded: Guarded) -> bool:
        return guarded.moment is not None and self._clock.wall() - guarded.moment < AT_ONCE

    def _show_next(self, guarded: Sequence[Guarded]) -> None:
        now = self._clock.wall()
        with self.scheduler._jobstores_lock:
            for each in guarded:
                store = self._store_of(each)
                job = None if store is None else store.lookup_job(each.job.id)
                if job is not None and job.next_run_time is not None and self.roll.named(each.name) is each:
                    self._shelf(each.alias).move_on(each, job, now)

    def _enter(
        self,
        guarded: Guarded,
        first_at: datetime | None = None,
        paused: bool = False,
        added_at: datetime | None = None,
        chosen: bool = False,
    ) -> None:
        self.roll.enter(guarded)
        self.wish(Define(guarded, first_at, paused, added_at, chosen))

    def wish(self, wish: Wish) -> None:
        if self._process is not None and self._process != os.getpid():
            log.error(
                "the guarded scheduler was started before a fork: nothing runs here; start it in the child"
            )
        self.wishes.append(wish)
        self.native.wake_mirror()

    def _check_trigger(self, job: Any, alias: str, trigger: Any) -> None:
        """Before anything is changed."""
        probe = _Probe(job, trigger)
        self.roll.drafted(probe, alias, is_shared(self.scheduler._jobstores.get(alias)))

    def _check_pending(self) -> None:
        for job, alias, _ in self.scheduler._pending_jobs:
            shared = is_shared(self.scheduler._jobstores.get(alias))
            self.roll.drafted(job, alias, shared, being_added=True)

    def _store_of(self, guarded: Guarded) -> Any:
        return self.scheduler._jobstores.get(guarded.alias)

    def _shelve(self) -> None:
        for alias, store in self.scheduler._jobstores.items():
            if not isinstance(getattr(store.get_due_jobs, "__self__", None), Shelf):
                Shelf(self, alias, store)

    def _shelf(self, alias: str) -> Shelf:
        shelf = self.scheduler._jobstores[alias].get_due_jobs.__self__
        assert isinstance(shelf, Shelf)
        return shelf

    # --- taking part ------------------------------------------------------------------------------------------

    def _join_running(self) -> None:
        self._take_part()
        for alias, store in self.scheduler._jobstores.items():
            for job in store.get_all_jobs():
                guarded = self.roll.drafted(job, alias, is_shared(store))
                if guarded is not None:
                    self._enter(guarded, paused=job.next_run_time is None)
        self.scheduler.wakeup()

    def _take_part(self) -> None:
        # What was here before may still be leaving, with what it had: everything is made anew.
        self._leaving = None
        self.native.resize(_slots(self.scheduler))
        self.roll = Roll(self._terms())
        self.wishes = deque()
        self._woken = False
        self._process = os.getpid()
        self._started_at = self._clock.steady()
        self._began.clear()
        self.host = ExecutorHost(self.scheduler, self.roll, self.handing_over)
        self._shelve()
        joined = self.native.take_part(self.host, partial(Mirror, self.roll, self.wishes, self))
        joined.add_done_callback(_say_failure)

    def _begin_to_leave(self) -> concurrent.futures.Future[None]:
        if self._leaving is None:
            if self.host is not None:
                self.host.close()
            self._leaving = self.native.depart()
        return self._leaving

    def _finish_leaving(self, leaving: concurrent.futures.Future[None]) -> None:
        try:
            leaving.result(self.native.settings.drain_timeout.total_seconds() + PATIENCE)
        except Exception:
            log.exception("the guard could not leave in good order; its presence expires by itself")
        self.native.end()
        self._leaving = self.host = self._process = None

    def _at_exit(self) -> None:
        """Also where nobody called `shutdown`: leadership is handed over, and what has ended is settled."""
        if self._process == os.getpid():
            leaving = self._begin_to_leave()
            if self.host is not None:
                self.host.abandon()
            self._finish_leaving(leaving)

    # --- what the replica tells, on the control thread --------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if event.kind == "store.lost_data":
            for guarded in self.roll.all():
                self.wish(Define(guarded))
        fire = event.fire
        guarded_job = None if fire is None else self.roll.named(fire.job_id)
        if fire is None or guarded_job is None or self.host is None:
            return
        job, alias = guarded_job.job, guarded_job.alias
        due = fire.due_at.astimezone(self.scheduler.timezone)
        if event.kind == State.MISSED:
            missed = JobExecutionEvent(EVENT_JOB_MISSED, job.id, alias, due)
            self.host.soon(partial(self.scheduler._dispatch_event, missed))
        elif event.kind == State.SKIPPED and fire.reason == Reason.OVERLAP:
            full = JobSubmissionEvent(EVENT_JOB_MAX_INSTANCES, job.id, alias, [due])
            self.host.soon(partial(self.scheduler._dispatch_event, full))
        if guarded_job.runs_once and guarded_job.moment == fire.due_at and event.kind in _FINAL:
            self.ran_out(guarded_job, fire.due_at)


class _Probe:
    """A job as it would be with another trigger."""

    def __init__(self, job: Any, trigger: Any) -> None:
        self._job = job
        self.trigger = trigger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)


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
    if isinstance(getattr(scheduler.start, "__self__", None), Guard):
        raise UsageError("this scheduler is guarded already; call guard() once")
    if misfire not in (None, *MISFIRES):
        raise ConfigurationError(f"misfire={misfire!r} is not known; use one of {', '.join(MISFIRES)}")
    if isinstance(unguarded, str):
        raise ConfigurationError(f"unguarded={unguarded!r}: give a list of job ids, as [{unguarded!r}]")


def _slots(scheduler: Any) -> int:
    executors = list(scheduler._executors.values())
    default = UNLIMITED if isinstance(scheduler, AsyncIOScheduler) else 10
    return min(10_000, capacity(executors) + (0 if "default" in scheduler._executors else default))


def _say_failure(ready: concurrent.futures.Future[None]) -> None:
    if not ready.cancelled() and (error := ready.exception()) is not None:
        log.error("the guard could not take part, so no guarded job runs: %s", error, exc_info=error)
