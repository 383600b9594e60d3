"""Jobs: when to run which task, with which policies; and a job as the store keeps it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal

from fencepost.errors import ConfigurationError
from fencepost.model.fires import FireRecord, State, error_line
from fencepost.model.retry import Retry
from fencepost.model.triggers import Trigger, trigger_from_json
from fencepost.model.values import Json, changed, checked_id, clean_json

MISFIRES = ("latest", "all", "skip")
CATCH_UP_LIMIT = 100
"""How many late fires `misfire="all"` runs at the most, and how many fires per job are planned ahead."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """What happens to a fire that falls due while the job is still active.

    `skip`: it is skipped. `queue(n)`: up to n wait their turn. `allow(n)`: up to n run at once.
    """

    kind: Literal["skip", "queue", "allow"] = "skip"
    limit: int = 1

    @classmethod
    def parse(cls, text: str | Overlap) -> Overlap:
        if isinstance(text, Overlap):
            return text
        found = re.fullmatch(r"(skip|queue|allow)(?:\((\d{1,4})\))?", str(text).strip())
        if not found or (found[1] == "skip" and found[2]) or (found[1] == "allow" and not found[2]):
            raise ConfigurationError(
                f'overlap={text!r} is not known; use "skip", "queue", "queue(5)" or "allow(3)"'
            )
        limit = int(found[2] or 1)
        if limit < 1:
            raise ConfigurationError(f"overlap={text!r} admits nothing; the number must be at least 1")
        return cls(found[1], limit)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return "skip" if self.kind == "skip" else f"{self.kind}({self.limit})"

    @property
    def at_once(self) -> int:
        return self.limit if self.kind == "allow" else 1


@dataclass(frozen=True)
class Job:
    """When to run which task, with which arguments and policies. A JSON value in the store."""

    id: str
    target: str
    trigger: Trigger | None = None
    args: Mapping[str, Json] = field(default_factory=dict)
    overlap: Overlap = Overlap()
    misfire: str = "latest"
    misfire_after: timedelta = timedelta(seconds=30)
    retry: Retry | None = None
    timeout: timedelta | None = None
    after_crash: str = "record"
    crash_attempts: int = 3
    execute_on: str = "any"

    def __post_init__(self) -> None:
        checked_id(self.id, "job id")
        _one_of("misfire", self.misfire, MISFIRES)
        _one_of("after_crash", self.after_crash, ("record", "rerun"))
        _one_of("execute_on", self.execute_on, ("any", "leader"))
        if not timedelta(0) < self.misfire_after <= timedelta(days=366):
            raise ConfigurationError(f"job {self.id}: misfire_after must be above 0 and at most a year")
        if self.timeout is not None and self.timeout <= timedelta(0):
            raise ConfigurationError(f"job {self.id}: timeout must be above 0; leave it out for no limit")
        if type(self.crash_attempts) is not int or not 1 <= self.crash_attempts <= 100:
            raise ConfigurationError(f"job {self.id}: crash_attempts must be a number between 1 and 100")
        object.__setattr__(self, "args", clean_json(self.args, f"arguments of job {self.id}"))

    @cached_property
    def text(self) -> str:
        """As the stores keep it: equal jobs have equal texts."""
        return json.dumps(job_to_json(self), sort_keys=True, separators=(",", ":"))

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigurationError(f"{name}={value!r} is not known; use one of {', '.join(known)}")


def job_to_json(job: Job) -> dict[str, Json]:
    return {
        "id": job.id,
        "target": job.target,
        "trigger": job.trigger.to_json() if job.trigger else None,
        "args": dict(job.args),
        "overlap": str(job.overlap),
        "misfire": job.misfire,
        "misfire_after": job.misfire_after.total_seconds(),
        "retry": job.retry.to_json() if job.retry else None,
        "timeout": job.timeout.total_seconds() if job.timeout else None,
        "after_crash": job.after_crash,
        "crash_attempts": job.crash_attempts,
        "execute_on": job.execute_on,
    }


def job_from_json(
    value: Mapping[str, Json], read_trigger: Callable[[Mapping[str, Json]], Trigger] = trigger_from_json
) -> Job:
    return Job(
        id=value["id"],
        target=value["target"],
        trigger=read_trigger(value["trigger"]) if value["trigger"] else None,
        args=value["args"],
        overlap=Overlap.parse(value["overlap"]),
        misfire=value["misfire"],
        misfire_after=timedelta(seconds=value["misfire_after"]),
        retry=Retry.from_json(value["retry"]) if value["retry"] else None,
        timeout=timedelta(seconds=value["timeout"]) if value["timeout"] else None,
        after_crash=value["after_crash"],
        crash_attempts=value["crash_attempts"],
        execute_on=value["execute_on"],
    )


@dataclass(frozen=True)
class Origin:
    """Where a definition comes from. One id that live replicas declare from two origins is one job that two
    applications take for their own."""

    key: str
    """What is compared: equal for every replica of one application, wherever it is installed."""
    module: str = ""
    distribution: str = ""
    file: str = ""
    command: str = ""
    """Of a job without code, as it may be shown: without secrets."""

    def __str__(self) -> str:
        if self.command:
            return f'"{self.command}"' + (f" in {self.file}" if self.file else "")
        if self.distribution:
            return f"{self.module} of {self.distribution}"
        return self.file or self.module or self.key

    def differs_from(self, other: Origin | None) -> bool:
        """An unknown origin, as that of rows of earlier releases, differs from none."""
        return other is not None and other.key != self.key


@dataclass(frozen=True)
class Rival:
    """A replica whose own definition of a job was refused, and has another origin than the stored one."""

    replica: str
    origin: Origin


@dataclass(frozen=True)
class Segment:
    """A stretch of one calendar: from `cursor` on, up to where a newer definition took over.

    Every fire up to `cursor` has been planned. `next_at` is the first one after it; until the planner has
    looked it equals the cursor, and the calendar counts as *behind*. None: the calendar is exhausted.
    """

    version: int
    trigger: Trigger
    cursor: datetime
    next_at: datetime | None
    until: datetime | None = None
    removed: bool = False
    """Its job was removed: what it still owes is cancelled."""


@dataclass(frozen=True)
class Gap:
    """A stretch of store time in which due fires are not run: a pause, or no live replica knew the task."""

    since: datetime
    until: datetime | None = None
    note: str = ""
    by: str = ""

    def covers(self, moment: datetime) -> bool:
        return self.since <= moment and (self.until is None or moment < self.until)


@dataclass(frozen=True)
class LastRun:
    """How the latest run of a job ended."""

    key: str
    state: State
    due_at: datetime
    started_at: datetime
    finished_at: datetime
    replica: str
    reason: str | None = None
    error_line: str | None = None

    @classmethod
    def of(cls, fire: FireRecord) -> LastRun | None:
        """None: it never ran."""
        if fire.attempt < 1 or fire.replica is None or fire.started_at is None or fire.finished_at is None:
            return None
        times = (fire.due_at, fire.started_at, fire.finished_at)
        return cls(fire.key, fire.state, *times, fire.replica, fire.reason, error_line(fire.error))

    @property
    def succeeded_at(self) -> datetime | None:
        return self.finished_at if self.state is State.SUCCEEDED else None

    @property
    def is_failure(self) -> bool:
        return self.state in (State.FAILED, State.LOST)


@dataclass(frozen=True)
class JobRecord:
    """A job as the store keeps it."""

    job: Job
    fingerprint: str
    created_at: datetime
    changed_at: datetime
    version: int = 0
    """Of the trigger: planning compares and sets (version, cursor, until)."""
    segments: tuple[Segment, ...] = ()
    """Calendars not yet planned to their end, oldest first; usually exactly one."""
    revision: int | None = None
    declared_by: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    """Fingerprints this definition replaced, the latest last."""
    pauses: tuple[Gap, ...] = ()
    past: tuple[Gap, ...] = ()
    """Fires of an `at` that were later than `misfire_after` already when it was declared: they are missed."""
    removed_at: datetime | None = None
    source: str = "code"
    """Who made this definition: `code` declares it, or it was made by hand (`api`)."""
    origin: Origin | None = None
    """Of the code that declares the job. Of one made by hand: of the code whose definition it replaces."""
    rivals: tuple[Rival, ...] = ()
    """Replicas that declare it from another origin. Some may have ended since."""
    token: int = 0
    """The last fencing token given out. Outlives fires, retention and removal."""
    decided_through: datetime | None = None
    """The high-water mark: no scheduled fire up to here may be planned again, whatever was pruned."""
    tail: str | None = None
    """Key of the last row closed without a start; a neighbour that shares its fate joins it."""
    kept: Json = None
    """What its last success has left for the next run: written with the settle, or not at all."""
    last_run: LastRun | None = None
    """The run that ended last; a fire that never started does not count."""
    last_success_at: datetime | None = None
    failures_in_a_row: int = 0
    """Runs that failed or were lost since the last success."""
    unknown_since: datetime | None = None
    """Since when no live replica has known its task. Not stored with the job: filled in when it is read."""

    @property
    def id(self) -> str:
        return self.job.id

    def after_run(self, fire: FireRecord) -> JobRecord:
        """With the end of this fire's run on record, if it has run."""
        run = LastRun.of(fire)
        if run is None:
            return self
        failures = 0 if run.succeeded_at else self.failures_in_a_row + run.is_failure
        success_at = run.succeeded_at or self.last_success_at
        return changed(self, last_run=run, last_success_at=success_at, failures_in_a_row=failures)

    @property
    def foreign(self) -> str | None:
        """Why this host does not know one of its calendars; None: it knows them all."""
        triggers = [segment.trigger for segment in self.segments]
        if self.job.trigger is not None:
            triggers.append(self.job.trigger)
        return next((trigger.foreign for trigger in triggers if trigger.foreign is not None), None)

    def paused_at(self, moment: datetime) -> Gap | None:
        return next((gap for gap in self.pauses if gap.covers(moment)), None)

    def pause_lasting(self, moment: datetime) -> Gap | None:
        """The latest pause that is not over. It may even seem to lie ahead, if the store's clock has stepped back."""
        return next((gap for gap in reversed(self.pauses) if gap.until is None or gap.until > moment), None)

    def next_run_after(self, moment: datetime) -> datetime | None:
        """The next scheduled fire that no pause, as known now, will skip. The trigger in force has its anchor filled in
        by the store: this is right from the registration on."""
        trigger = self.segments[-1].trigger if self.segments else None
        if trigger is not None and trigger.foreign is not None:
            return None
        while trigger is not None and (found := trigger.next_after(moment)) is not None:
            gap = self.paused_at(found)
            if gap is None:
                return found
            if gap.until is None:
                return None
            moment = max(found, gap.until - datetime.resolution)
        return None

    def behind_at(self, moment: datetime) -> bool:
        """Whether fires may be due that are not planned yet."""
        head = self.segments[0] if self.segments else None
        return head is not None and head.next_at is not None and head.next_at <= moment


@dataclass(frozen=True)
class JobEvent:
    """One line of a job's history, by store time. `audit` recomputes from these what was due."""

    job_id: str
    at: datetime
    kind: Literal["defined", "paused", "resumed", "removed", "led", "resigned"]
    """The last two: of leadership (`LEADERSHIP`)."""
    version: int
    since: datetime
    """From when on it holds: after the last fire decided by then, ahead of `at` where the clock was set back."""
    trigger: Mapping[str, Json] | None = None
    until: datetime | None = None
    note: str = ""
    by: str = ""
    token: int = 0
    """The job's last token then: whatever the clock said, a higher one was given out later."""
