"""APScheduler's job stores, as the guard leaves them: guarded jobs are kept there and never due there."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from apscheduler.events import EVENT_JOB_REMOVED, JobEvent
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.memory import MemoryJobStore

from fencepost.apscheduler.registry import Guarded
from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from fencepost.apscheduler.guard import Guard

log = logging.getLogger("fencepost")

STARTS = 3
"""How often the start of a shared job store is tried."""


def is_shared(store: Any) -> bool:
    """Whether its jobs outlive the process, and other processes may see them."""
    return store is not None and not isinstance(store, MemoryJobStore)


class UnreadableJob:
    """Stands in for a row that cannot be read here, because this process lacks the function, or a class.

    APScheduler deletes such rows: one replica of an older version, and the job is gone for all. With something to
    show for the row it is left alone.
    """

    id = ""
    next_run_time = None


class GuardedJobStore:
    """One job store. Its methods are replaced by those that are named alike here."""

    def __init__(self, guard: Guard, alias: str, store: Any) -> None:
        self._guard = guard
        self._alias = alias
        self._store = store
        self._shared = is_shared(store)
        self._now: datetime | None = None
        self._checked: datetime | None = None
        self._warned: set[str] = set()
        self._stock: dict[str, Any] = {}
        names = ["start", "get_due_jobs", "get_next_run_time", "get_all_jobs", "lookup_job"]
        if hasattr(store, "_reconstitute_job"):
            names.append("_reconstitute_job")
        for name in names:
            self._stock[name] = getattr(store, name)
            setattr(store, name, getattr(self, name))

    @staticmethod
    def is_on(store: Any) -> bool:
        return isinstance(getattr(store.get_due_jobs, "__self__", None), GuardedJobStore)

    @staticmethod
    def around(store: Any) -> GuardedJobStore:
        """The one whose methods this job store has."""
        found = store.get_due_jobs.__self__
        assert isinstance(found, GuardedJobStore)
        return found

    def start(self, scheduler: Any, alias: str) -> None:
        """Workers that start together may all create the table of a job store. One of them does; the others come again
        instead of ending the application."""
        for attempt in range(STARTS):
            try:
                self._stock["start"](scheduler, alias)
                return
            except Exception:
                if attempt == STARTS - 1 or not self._shared:
                    raise
                time.sleep(0.1 * 2**attempt)

    def get_due_jobs(self, now: datetime) -> list[Any]:
        """Those of the scheduler's own. Guarded ones only move their next run time on, which is for show."""
        self._now = now
        if self._shared and (self._checked is None or now - self._checked >= self._guard.check_every):
            self._checked = now
            self._check()
        due = []
        for job in self._readable(self._stock["get_due_jobs"](now)):
            try:
                guarded = self._guard.keeper.known(job, self._alias)
            except ConfigurationError as problem:
                self._tell_once(job.id, str(problem))
                continue
            if guarded is None:
                due.append(job)
            else:
                self.move_on(guarded, job, now)
        return due

    def get_next_run_time(self) -> datetime | None:
        """When APScheduler must check again. A row that is due and still there after a check is run by another
        process, or by none: it must not be checked over and over."""
        found: datetime | None = self._stock["get_next_run_time"]()
        now = self._now
        if found is None or now is None or found > now:
            return found
        times = [job.next_run_time for job in self.get_all_jobs()]
        return min((time for time in times if time is not None and time > now), default=None)

    def get_all_jobs(self) -> list[Any]:
        return self._readable(self._stock["get_all_jobs"]())

    def lookup_job(self, job_id: str) -> Any:
        found = self._stock["lookup_job"](job_id)
        return None if isinstance(found, UnreadableJob) else found

    def _reconstitute_job(self, state: Any) -> Any:
        try:
            return self._stock["_reconstitute_job"](state)
        except Exception as problem:
            self._tell_once(repr(problem), f"cannot be read here ({problem!r}); other replicas may run it")
            return UnreadableJob()

    def move_on(self, guarded: Guarded, job: Any, now: datetime) -> None:
        """Show when the job is next due. A job whose calendar has ended is removed. One that runs once
        stays there with its date until it is handed over: `take_off`."""
        if guarded.runs_once:
            if not self._shared and guarded.moment is not None and job.next_run_time != guarded.moment:
                job._modify(next_run_time=guarded.moment)  # changed by another process
                self._store.update_job(job)
            return
        following: datetime | None = guarded.put_off
        if following is not None and following > now:
            pass  # set by hand
        elif guarded.calendar is None:  # the store has not answered yet: as APScheduler would
            following = job.trigger.get_next_fire_time(job.next_run_time, now)
        else:
            following = guarded.calendar.next_after(now)
        try:
            if following is not None:
                job._modify(next_run_time=following.astimezone(self._guard.scheduler.timezone))
                self._store.update_job(job)
                return
            self._store.remove_job(job.id)
        except JobLookupError:
            return  # another replica has been here
        self._guard.keeper.over(guarded)
        self._guard.scheduler._dispatch_event(JobEvent(EVENT_JOB_REMOVED, job.id, self._alias))

    def take_off(self, job_id: str, moment: datetime | None) -> None:
        """Remove the row; that of a job that runs once only if it still has this date."""
        job = self.lookup_job(job_id)
        if job is None or (moment is not None and job.next_run_time != moment):
            return
        with suppress(JobLookupError):  # another replica has been here
            self._store.remove_job(job_id)
            self._guard.scheduler._dispatch_event(JobEvent(EVENT_JOB_REMOVED, job_id, self._alias))

    def _check(self) -> None:
        """What other processes have put into a shared job store, changed there, or removed."""
        present = set()
        for job in self.get_all_jobs():
            present.add(job.id)
            try:
                self._guard.keeper.known(job, self._alias, reread=True)
            except ConfigurationError as problem:
                self._tell_once(job.id, str(problem))
        for guarded in self._guard.keeper.registry.all(self._alias):
            if guarded.job.id not in present and not guarded.runs_once:
                self._guard.keeper.gone(guarded)

    def _readable(self, jobs: Iterable[Any]) -> list[Any]:
        return [job for job in jobs if not isinstance(job, UnreadableJob)]

    def _tell_once(self, what: str, problem: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.error("a job in APScheduler's job store %r does not run here: %s", self._alias, problem)
