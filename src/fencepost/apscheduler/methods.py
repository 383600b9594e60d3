"""The methods of APScheduler's scheduler that the guard replaces, on the one object that is guarded."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.base import STATE_STOPPED

from fencepost.apscheduler.calls import changed_call
from fencepost.apscheduler.job_stores import is_shared
from fencepost.apscheduler.registry import Guarded
from fencepost.apscheduler.wishes import Pause, Remove, Resume, RunAt
from fencepost.model import Json
from fencepost.runs.recurring import RecurringErrors

if TYPE_CHECKING:
    from fencepost.apscheduler.guard import Guard

log = logging.getLogger("fencepost")

GOOD_BYE = 2.0
"""Seconds for which leaving may hold up the event loop of an application that ends."""
TRIES = 5
"""How often a job is added to a job store in which other processes add and remove it, too."""


class Methods:
    """Each does what APScheduler's own does, and notifies the guard."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._scheduler = guard.scheduler
        self._errors = RecurringErrors(log)
        self._resuming: int | None = None
        """The thread that resumes a job at this moment."""
        replacements = {
            "start": self.start,
            "resume": self.resume,
            "shutdown": self.shutdown,
            "_process_jobs": self.process_jobs,
            "_real_add_job": self.add_job,
            "modify_job": self.modify_job,
            "resume_job": self.resume_job,
            "remove_job": self.remove_job,
            "remove_all_jobs": self.remove_all_jobs,
            "add_jobstore": self.add_jobstore,
        }
        self._stock = {name: getattr(self._scheduler, name) for name in replacements}
        for name, method in replacements.items():
            setattr(self._scheduler, name, method)

    @staticmethod
    def are_on(scheduler: Any) -> bool:
        return isinstance(getattr(scheduler.start, "__self__", None), Methods)

    # --- the scheduler ----------------------------------------------------------------------------------------

    def start(self, *args: Any, **options: Any) -> Any:
        if self._scheduler.state != STATE_STOPPED:
            return self._stock["start"](*args, **options)  # says so
        self._guard.native.check_gate()
        self._guard.take_part()
        try:
            return self._stock["start"](*args, **options)  # of a blocking scheduler: until it is shut down
        except BaseException:
            self._guard.begin_to_leave()
            raise

    def resume(self) -> None:
        self._stock["resume"]()
        self._guard.native.wake_worker()

    def shutdown(self, wait: bool = True) -> None:
        if self._scheduler.state != STATE_STOPPED:
            leaving = self._guard.begin_to_leave()
            if wait and not isinstance(self._scheduler, AsyncIOScheduler):
                self._guard.finish_leaving(leaving)
            elif wait and not self._guard.native.is_running_jobs:
                # What runs needs this event loop to end, but saying good-bye does not. It cannot wait for the end of
                # the process: uvicorn's workers kill themselves as soon as their lifespan is over.
                concurrent.futures.wait([leaving], GOOD_BYE)
        self._stock["shutdown"](wait)

    def process_jobs(self) -> float | None:
        """Called on the scheduler's thread or loop whenever it is woken, and when a job is due by its own reckoning."""
        self._guard.hand_over()
        try:
            wait: float | None = self._stock["_process_jobs"]()
        except (
            Exception
        ) as error:  # of a job store, where APScheduler does not expect it: its thread would end
            self._errors.log("APScheduler could not search for due jobs; it tries again", error)
            return float(self._scheduler.jobstore_retry_interval)
        if any(is_shared(store) for store in self._scheduler._jobstores.values()):
            longest = self._guard.check_every.total_seconds()
            return longest if wait is None else min(wait, longest)
        return wait

    def add_jobstore(self, *args: Any, **options: Any) -> None:
        with self._scheduler._jobstores_lock:
            self._stock["add_jobstore"](*args, **options)
            self._guard.guard_job_stores()

    # --- its jobs ---------------------------------------------------------------------------------------------

    def add_job(self, job: Any, alias: str, replace_existing: bool) -> None:
        guarded = self._guard.keeper.prepared(job, alias)
        first_at: datetime | None = getattr(job, "next_run_time", None)
        paused = hasattr(job, "next_run_time") and first_at is None
        self._add_for_sure(job, alias, replace_existing)
        if guarded is not None:
            self._guard.keeper.added(guarded, first_at, paused)

    def _add_for_sure(self, job: Any, alias: str, replace_existing: bool) -> None:
        """Between finding that a shared job store has the job and replacing it, another process may remove it."""
        for attempt in range(TRIES):
            try:
                self._stock["_real_add_job"](job, alias, replace_existing)
                return
            except JobLookupError:
                if attempt == TRIES - 1:
                    raise

    def modify_job(self, job_id: str, jobstore: str | None = None, **changes: Any) -> Any:
        if not self._scheduler.running:
            return self._stock["modify_job"](job_id, jobstore, **changes)
        with self._scheduler._jobstores_lock:
            job, alias = self._scheduler._lookup_job(job_id, jobstore)
            guarded = self._guard.keeper.registry.of(alias, job_id)
            call = {} if guarded is None else self._checked(guarded, job, changes)
            was_paused = job.next_run_time is None
        job = self._stock["modify_job"](job_id, jobstore, **changes)
        if guarded is not None:
            self._mirror_changes(guarded, job, changes, call, was_paused)
        return job

    def _checked(self, guarded: Guarded, job: Any, changes: dict[str, Any]) -> dict[str, Json]:
        """Before anything is changed: what the job calls afterwards, as its definition says it."""
        keeper = self._guard.keeper
        if "trigger" in changes:
            keeper.drafted(_Probe(job, changes["trigger"]), guarded.alias)
        if guarded.shared:
            return {}  # all processes see the row
        return changed_call(job, changes, guarded.native.args)

    def _mirror_changes(
        self, guarded: Guarded, job: Any, changes: dict[str, Any], call: dict[str, Json], was_paused: bool
    ) -> None:
        keeper, name = self._guard.keeper, guarded.name
        redrafted = keeper.drafted(job, guarded.alias)
        assert redrafted is not None
        redrafted.native = replace(redrafted.native, args=call)
        # Another process may have paused or moved a job that runs once: then its date here is not the one in force.
        moved = "next_run_time" in changes and redrafted.moment != guarded.moment
        if changes.keys() - {"next_run_time", "name"} or redrafted.native != guarded.native or moved:
            keeper.changed(guarded, redrafted)
        if "next_run_time" not in changes or redrafted.runs_once:
            return  # when a job runs once is its definition
        if job.next_run_time is None:
            keeper.wish(Pause(name))
            return
        resuming = self._resuming == threading.get_ident()
        if was_paused or resuming or "trigger" in changes:
            keeper.wish(Resume(name))
        if not resuming and "trigger" not in changes:
            keeper.wish(RunAt(redrafted, job.next_run_time))

    def resume_job(self, job_id: str, jobstore: str | None = None) -> Any:
        with self._scheduler._jobstores_lock:
            self._resuming = threading.get_ident()
            try:
                return self._stock["resume_job"](job_id, jobstore)
            finally:
                self._resuming = None

    def remove_job(self, job_id: str, jobstore: str | None = None) -> None:
        doomed = [each for each in self._in_job_stores(jobstore) if each.job.id == job_id]
        self._stock["remove_job"](job_id, jobstore)
        self._removed(doomed)

    def remove_all_jobs(self, jobstore: str | None = None) -> None:
        doomed = self._in_job_stores(jobstore)
        self._stock["remove_all_jobs"](jobstore)
        self._removed(doomed)

    def _in_job_stores(self, jobstore: str | None) -> list[Guarded]:
        return self._guard.keeper.registry.all(jobstore) if self._scheduler.running else []

    def _removed(self, doomed: Sequence[Guarded]) -> None:
        for guarded in doomed:
            self._guard.keeper.registry.strike(guarded)
            self._guard.keeper.wish(Remove(guarded.name))


class _Probe:
    """A job as it would be with another trigger."""

    def __init__(self, job: Any, trigger: Any) -> None:
        self._job = job
        self.trigger = trigger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)
