"""What the scheduler's threads want done in the store. The mirror carries it there, in order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fencepost.apscheduler.calls import merged
from fencepost.apscheduler.registry import Guarded
from fencepost.model import Gap, Job, JobRecord
from fencepost.model.triggers import iso

AT_ONCE = timedelta(seconds=60)
"""How late a date may be run that was on time when it was added: joining and electing a leader take their time."""
KEPT_KNOWN = 3600.0
"""Seconds for which a job that is over stays known here: its last fire may be claimed late."""


@dataclass(frozen=True)
class Define:
    guarded: Guarded
    first_at: datetime | None = None
    """If the definition is new, one run at this time beside those of the calendar."""
    paused: bool = False
    """If the definition is new it begins with a pause."""
    added_at: datetime | None = None
    """When the application added or changed it, by this process's clock. None: it was found in a job store."""
    base: Job | None = None
    """What this process had before it changed some of it: the rest may have been changed by other processes."""
    chosen: bool = False
    """The application has added or changed it while it ran, and not as it started: that holds for all processes."""

    def was_replaced(self, record: JobRecord | None) -> bool:
        """Whether the store has had this definition, and another since."""
        return record is not None and not self.chosen and self.guarded.native.fingerprint in record.earlier

    def definition(self, record: JobRecord | None) -> Job:
        """What to put. A date that was due when it was added, and on time, runs at once, also if the store takes it
        only later."""
        job, moment = self.guarded.native, self.guarded.moment
        if self.base is not None and record is not None and not self.guarded.runs_once:
            return merged(self.base, job, record.job)
        if moment is None or self.added_at is None:
            return job
        late = self.added_at - moment
        if timedelta(0) <= late <= job.misfire_after:
            return replace(job, misfire_after=max(job.misfire_after, AT_ONCE))
        return job


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
class Conclude:
    """A job that runs once has run, or will not: it is removed, unless it has been given another date meanwhile."""

    guarded: Guarded
    moment: datetime


@dataclass(frozen=True)
class RunAt:
    """One run beside those of the calendar; and none of those before."""

    guarded: Guarded
    at: datetime
    expected: bool = False
    """The time has come, and the job is still put off until then."""


@dataclass(frozen=True)
class Forget:
    """Not known to this replica any more, unless it has been defined again; other processes may go on with it."""

    guarded: Guarded
    after: float = 0.0


Wish = Define | Pause | Resume | Remove | Conclude | RunAt | Forget


def put_off_note(at: datetime) -> str:
    """Of a pause that lasts until the next run, which was set by hand."""
    return f"next_run_time={iso(at)}"


def put_off_until(gap: Gap) -> datetime | None:
    """The next run for whose sake the job is paused; not if the pause was ended or moved since."""
    return gap.until if gap.until is not None and gap.note == put_off_note(gap.until) else None
