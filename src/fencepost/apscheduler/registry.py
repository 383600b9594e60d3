"""The registry of guarded jobs: which jobs are guarded, under which name, and as which Fencepost job."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from apscheduler.triggers.date import DateTrigger

from fencepost.apscheduler.names import derived_name, given_name, is_made_up
from fencepost.apscheduler.triggers import from_apscheduler
from fencepost.errors import ConfigurationError
from fencepost.model import Job, Overlap
from fencepost.model.triggers import EARLIEST, Trigger, at

SHORTEST_GRACE = timedelta(seconds=1)
"""Later than that a fire is late enough to be coalesced, if it may be late at all."""
LONGEST_GRACE = timedelta(days=366)
MOST_INSTANCES = 9_999


@dataclass(eq=False)
class Guarded:
    """One job of the scheduler."""

    job: Any
    """APScheduler's. It is what runs."""
    alias: str
    """Of its job store."""
    native: Job
    """Fencepost's. It says when."""
    shared: bool = False
    """Other processes see its row in the job store."""
    calendar: Trigger | None = None
    """The trigger as the store keeps it, with the anchor that it chose; None: not known yet."""
    stored: Job | None = None
    """The definition that is in force in the store, as far as this process knows; None: the store has not answered."""
    offered_again: float | None = None
    """The store keeps another definition, which live processes have chosen. When, by the steady clock, ours is offered
    again."""
    starting: bool = False
    """Added while its process started, as every other worker does as well."""
    put_off: datetime | None = None
    """When it next runs, if that was set by hand."""
    ran_out: bool = False
    """Runs once, and that is decided: its row has been taken out of the job store."""

    @property
    def name(self) -> str:
        return self.native.id

    @property
    def runs_once(self) -> bool:
        return isinstance(self.job.trigger, DateTrigger)

    @property
    def moment(self) -> datetime | None:
        """Of a job that runs once: when. None: it is paused, or runs more often."""
        return self._date_of(self.stored or self.native)

    @property
    def own_moment(self) -> datetime | None:
        """The same, as this process has declared it."""
        return self._date_of(self.native)

    def _date_of(self, job: Job) -> datetime | None:
        return job.trigger.next_after(EARLIEST) if self.runs_once and job.trigger is not None else None


@dataclass(frozen=True)
class Terms:
    """What the caller of `guard` wants of all jobs."""

    execute_on: str
    misfire: str | None
    unguarded: frozenset[str]
    defaults: Mapping[str, Any]
    """The scheduler's own, for jobs that have not been added yet."""


class GuardedJobs:
    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._lock = threading.RLock()
        self._by_name: dict[str, Guarded] = {}
        self._names: dict[tuple[str, str], str] = {}
        self.changes = 0
        """How often a job was entered, struck or given other arguments."""

    def drafted(self, job: Any, alias: str, shared: bool, *, being_added: bool = False) -> Guarded | None:
        """The entry that the job would have; None: it is not to be guarded. An error if it cannot be guarded."""
        if job.id in self._terms.unguarded:
            return None
        made_up = is_made_up(job.id)
        if made_up and not shared and isinstance(job.trigger, DateTrigger):
            return None  # one-off work of this process, as a request handler adds it
        if made_up and shared and being_added and not isinstance(job.trigger, DateTrigger):
            raise ConfigurationError(
                f"job {job.name!r} has no id of its own, so every start of every process would add it to the job store "
                f"{alias!r} once more; give it an id= and replace_existing=True"
            )
        name = self._name(job, alias, made_up and not shared)
        try:
            trigger = self._trigger(job, name, shared)
        except ConfigurationError as problem:
            raise ConfigurationError(
                f"job {job.id!r} cannot be guarded: {problem} To leave it as it is, on every process: "
                f"guard(…, unguarded=[{job.id!r}])"
            ) from None
        return Guarded(job, alias, self._native(name, job, trigger), shared)

    def enter(self, guarded: Guarded) -> None:
        with self._lock:
            known = self._by_name.get(guarded.name)
            if known is not None and (known.alias, known.job.id) != (guarded.alias, guarded.job.id):
                raise ConfigurationError(
                    f"two jobs are called {guarded.name!r}, in the job stores {known.alias!r} and {guarded.alias!r}; "
                    "give one of them another id="
                )
            if known is not None and known.native.trigger == guarded.native.trigger:
                guarded.calendar, guarded.starting = known.calendar, known.starting
            self.changes += 1
            self._by_name[guarded.name] = guarded
            self._names[guarded.alias, guarded.job.id] = guarded.name

    def renew(self, guarded: Guarded, job: Any) -> None:
        """The same job with what does not matter to the store, such as its arguments, changed."""
        with self._lock:
            self.changes += 1
            guarded.job = job

    def named(self, name: str) -> Guarded | None:
        return self._by_name.get(name)

    def of(self, alias: str, job_id: str) -> Guarded | None:
        name = self._names.get((alias, job_id))
        return None if name is None else self._by_name.get(name)

    def all(self, alias: str | None = None) -> list[Guarded]:
        with self._lock:
            return [each for each in self._by_name.values() if alias in (None, each.alias)]

    def strike(self, guarded: Guarded) -> None:
        """Unless its name has been given to another meanwhile."""
        with self._lock:
            if self._by_name.get(guarded.name) is guarded:
                self.changes += 1
                del self._by_name[guarded.name]
                self._names.pop((guarded.alias, guarded.job.id), None)

    def _name(self, job: Any, alias: str, derived: bool) -> str:
        """Jobs that differ in nothing that is the same in every process are numbered in the order in which they were
        added."""
        if not derived:
            return given_name(job.id)
        if (known := self._names.get((alias, job.id))) is not None:
            return known
        first = name = derived_name(job, from_apscheduler(job.trigger, spread=""))
        number = 1
        while name in self._by_name:
            number += 1
            name = f"{first}-{number}"
        return name

    def _trigger(self, job: Any, name: str, shared: bool) -> Trigger | None:
        """A job that runs once runs at its `next_run_time`, whatever its trigger said first. A paused one has no date
        at all, so that its moment does not pass as one that was skipped."""
        if not isinstance(job.trigger, DateTrigger) or not hasattr(job, "next_run_time"):
            return from_apscheduler(job.trigger, spread=name, from_row=shared)
        return None if job.next_run_time is None else at(job.next_run_time)

    def _native(self, name: str, job: Any, trigger: Trigger | None) -> Job:
        def policy(of: str) -> Any:
            return getattr(job, of, self._terms.defaults[of])

        instances, grace = policy("max_instances"), policy("misfire_grace_time")
        native = Job(name, name, trigger, execute_on=self._terms.execute_on)
        if instances > 1:
            native = replace(native, overlap=Overlap("allow", min(instances, MOST_INSTANCES)))
        # Without a grace time APScheduler runs a date however late it learns of it; there is nothing to coalesce.
        unlimited = LONGEST_GRACE if isinstance(job.trigger, DateTrigger) else SHORTEST_GRACE
        after = unlimited if grace is None else min(timedelta(seconds=grace), LONGEST_GRACE)
        misfire = "skip" if grace is not None else "latest" if policy("coalesce") else "all"
        return replace(native, misfire=self._terms.misfire or misfire, misfire_after=after)
