"""A job as the store keeps it: its definition, its calendars, what was done to it and how its runs ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fencepost.model.backfills import Backfill, Skip, counted
from fencepost.model.fires import FireRecord, State, error_line
from fencepost.model.jobs import Job
from fencepost.model.limits import HeldBack, LimitState
from fencepost.model.triggers import Trigger
from fencepost.model.values import Json, changed
from fencepost.model.watching import Episode, Watch


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
    children: tuple[str, ...] = ()
    """Jobs that follow this one, or did. Their own definitions say whether they do."""
    watch: tuple[Watch, ...] = ()
    """What rules of notifications ask of it. Kept here so that the step in which a run ends needs to read no rules."""
    episodes: tuple[Episode, ...] = ()
    """Causes that a channel was told of, and that are not over."""
    backfills: tuple[Backfill, ...] = ()
    """The latest, oldest first."""
    skips: tuple[Skip, ...] = ()
    """Coming fires that are not to run."""
    held_back: HeldBack | None = None
    """The limit that its fires wait for, by its last decision."""
    limit: LimitState | None = None
    """Of the row of a limit, which is kept among the jobs; no job has one."""
    unknown_since: datetime | None = None
    """Since when no live replica has known its task. Not stored with the job: filled in when it is read."""

    @property
    def id(self) -> str:
        return self.job.id

    def after_run(self, fire: FireRecord) -> JobRecord:
        """With the end of this fire's run on record, if it has run."""
        if fire.backfill is not None:
            return changed(self, backfills=counted(self.backfills, fire))._with_run(fire)
        return self._with_run(fire)

    def _with_run(self, fire: FireRecord) -> JobRecord:
        run = LastRun.of(fire)
        if run is None:
            return self
        failures = 0 if run.succeeded_at else self.failures_in_a_row + run.is_failure
        success_at = run.succeeded_at or self.last_success_at
        return changed(self, last_run=run, last_success_at=success_at, failures_in_a_row=failures)

    def backfill(self, name: str | None) -> Backfill | None:
        return next((each for each in self.backfills if each.name == name), None)

    def skip_at(self, due_at: datetime) -> Skip | None:
        return next((each for each in self.skips if each.due_at == due_at), None)

    @property
    def foreign(self) -> str | None:
        """Why this host does not know one of its calendars; None: it knows them all."""
        triggers = [segment.trigger for segment in self.segments]
        triggers += [backfill.trigger for backfill in self.backfills if backfill.is_open]
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
            if gap is None and self.skip_at(found) is None:
                return found
            if gap is None:
                moment = found
                continue
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
    kind: Literal["defined", "changed", "paused", "resumed", "removed", "led", "resigned"]
    """Defined: with a calendar of its own. Changed: something else of the definition. The last two: of leadership
    (`LEADERSHIP`)."""
    version: int
    since: datetime
    """From when on it holds: after the last fire decided by then, ahead of `at` where the clock was set back."""
    trigger: Mapping[str, Json] | None = None
    until: datetime | None = None
    note: str = ""
    by: str = ""
    token: int = 0
    """The job's last token then: whatever the clock said, a higher one was given out later."""
    before: Mapping[str, Json] | None = None
    """Of a change: the fields that differ, as they were. None: there was no job."""
    after: Mapping[str, Json] | None = None
