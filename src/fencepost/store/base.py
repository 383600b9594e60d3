"""The store: one small interface, and the values that cross it.

Rules every implementation keeps, and the conformance suite (`fencepost.testing.conformance`) checks:

* Each method is one atomic step at one moment of the *store's* clock. No caller's clock is ever used:
  durations travel, instants do not.
* Losing a race is a reply (`False`, `None`, an empty tuple). Only breakage raises, and
  `StoreUnavailable` may mean "it was committed": every method can therefore be repeated safely.
* Values are frozen dataclasses. Batches, pages and remembered replies are bounded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from fencepost.errors import UsageError
from fencepost.model import (
    Backfill,
    FireRecord,
    Gap,
    Job,
    JobEvent,
    JobRecord,
    Json,
    Lease,
    Origin,
    ReplicaRecord,
    State,
)
from fencepost.model.triggers import EARLIEST
from fencepost.model.watching import NotificationRule
from fencepost.store.formats import Contents
from fencepost.store.outbox import Checked, NoticeChange, Outbox, OutboxQuery
from fencepost.store.preflight import Preflight, not_checked
from fencepost.store.unreadable import UnreadableRows

if TYPE_CHECKING:
    from fencepost.store.counting import CountsFires

# --- presence and leadership ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watched:
    """What a follower has seen of the leader: this term and renewal count, unchanged for so long by its own
    steady clock while the store answered. `gone`: there is evidence that the leader's session has ended."""

    term: int
    renewals: int
    seconds: float
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Campaign:
    """Asks to lead, or to go on leading."""

    ttl: float
    watched: Watched | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """The highest a replica has been told. A store that has less than that has lost it."""

    incarnation: int = 0
    term: int = 0
    steps: int = 0
    server: str = ""
    latest: datetime | None = None
    """By the store's clock. The one that goes on with less may be behind it."""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """One heartbeat: renews presence and with it every claim of this replica; campaigns for leadership.

    Only a heartbeat that is `joining` creates a presence: one that arrives after the replica has left, or was
    declared dead, must not bring it back. Beats are numbered so that a delayed one changes nothing.
    """

    replica: str
    number: int
    ttl: float
    heartbeat: float
    host: str = ""
    pid: int = 0
    version: str = ""
    claim_no: int = 0
    """The last claim number this replica has used: a delayed claim below it stays refused after rejoining."""
    joining: bool = False
    targets: tuple[str, ...] | None = None
    """The tasks it knows; None: as before."""
    draining: bool = False
    """It stops claiming and hands leadership over now."""
    lingering: tuple[str, ...] | None = None
    """Fires whose bodies go on here although their runs have ended; None: as before."""
    campaign: Campaign | None = None
    seen: Seen = Seen()


@dataclass(frozen=True, slots=True)
class Held:
    """A claim the store holds for the replica that asks."""

    key: str
    token: int
    claim_no: int
    cancel_requested: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The answer to a heartbeat. Not `known`: this replica has no presence (any more) and holds nothing."""

    now: datetime
    known: bool
    leader: Lease
    held: tuple[Held, ...] = ()
    steps: int = 0
    peers: tuple[str, ...] = ()
    """The other replicas that claim the same fires as this one: they know the same tasks in the same pools, have
    claimed before, do not drain, and are not overdue."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """`gone`: its session has ended, so leadership may be taken, but the process may live. `dead`: its death
    is proven, so its runs may be settled as well."""

    gone: frozenset[str] = frozenset()
    dead: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Roster:
    """Who takes part, as of `now`."""

    now: datetime
    leader: Lease
    replicas: tuple[ReplicaRecord, ...]
    overdue: frozenset[str]
    steady: float
    """The same moment on the store's steady clock."""

    def heard_at(self, replica: ReplicaRecord) -> datetime:
        """When the store last heard of it: a replica that has just been killed is alive until its TTL is over."""
        silent = max(0.0, self.steady - (replica.expires - replica.ttl))
        return max(self.now - timedelta(seconds=silent), replica.joined_at)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A replica whose renewal count a leader saw unchanged for so long. `dead`: its death is proven."""

    replica: str
    renewals: int
    seconds: float
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did, and what there is to watch until the next one."""

    roster: Roster
    expired: tuple[str, ...] = ()
    settled: tuple[FireRecord, ...] = ()
    """Runs of expired replicas: `lost`, or `waiting` to be run again."""


# --- jobs and planning ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutJob:
    job: Job
    revision: int | None = None
    by: str = ""
    """The replica whose code declares it, or the person who made it."""
    replace: bool = True
    source: Literal["code", "api"] = "code"
    origin: Origin | None = None
    """Of the code. None: not known; it conflicts with no other origin."""
    chosen: bool = False
    """A caller asks for this definition now; it is not what the code of a process says. It may be an earlier one."""
    expected: str | None = None
    """The fingerprint of the definition that the caller has seen; `NO_JOB`: none. If another one holds by now, nothing
    is changed."""


NO_JOB = "none"

Outcome = Literal[
    "created",
    "changed",
    "unchanged",
    "exists",
    "older revision",
    "flip back",
    "other origin",
    "made by hand",
    "changed meanwhile",
    "unreadable",
    "cycle",
]
"""Unreadable: what is stored, or a job that it would follow, cannot be read here, and is left as it is.
Cycle: it would follow itself."""
REFUSED = frozenset(
    {
        "exists",
        "older revision",
        "flip back",
        "other origin",
        "made by hand",
        "changed meanwhile",
        "unreadable",
        "cycle",
    }
)


@dataclass(frozen=True, slots=True)
class JobPut:
    job_id: str
    outcome: Outcome
    origin: Origin | None = None
    """Of the definition that is stored, if this one was refused."""
    detail: str = ""
    """Of a cycle: the jobs in it. Of one that is unreadable: the job that it would follow, if it is that one."""

    @property
    def refused(self) -> bool:
        return self.outcome in REFUSED


@dataclass(frozen=True, slots=True)
class ChangeJob:
    """Pause, resume or remove one job; start, pause, resume or cancel a backfill of it; skip one of its coming fires,
    or take that back."""

    job_id: str
    kind: Literal[
        "pause",
        "resume",
        "remove",
        "backfill",
        "pause backfill",
        "resume backfill",
        "cancel backfill",
        "skip",
        "unskip",
    ]
    note: str = ""
    by: str = ""
    until: datetime | None = None
    anew: bool = False
    """A pause that replaces the one that lasts. Otherwise what `note` and `until` leave open stays as it is."""
    if_undeclared: bool = False
    """Remove it only if code declared it and no live replica knows its task."""
    version: int | None = None
    """Of the trigger that the caller has seen. If the job has another by now, nothing is changed."""
    expected: str | None = None
    """The same with the fingerprint of the whole definition."""
    backfill: Backfill | None = None
    """To be started. The same name again changes nothing."""
    name: str = ""
    """Of the backfill that is paused, resumed or cancelled."""
    due_at: datetime | None = None
    """Of the coming fire."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some of the jobs, in the order of their ids."""

    limit: int
    after: str = ""
    """Those whose id is greater."""
    contains: str = ""
    """Those whose id has this in it, in upper or lower case."""

    def has(self, id: str) -> bool:
        return id > self.after and self.contains.lower() in id.lower()


@dataclass(frozen=True, slots=True)
class DueJobs:
    """Jobs whose calendar must be expanded. `soonest`: when the next one will."""

    now: datetime
    jobs: tuple[JobRecord, ...]
    soonest: datetime | None
    unknown: Mapping[str, tuple[Gap, ...]] = field(default_factory=dict)
    """By target: stretches in which no replica knew it."""
    lost_through: datetime | None = None
    """What was due by then may have run before the store lost its data."""

    def gaps_of(self, record: JobRecord) -> tuple[Gap, ...]:
        """Stretches whose fires share a fate, apart from the job's own pauses."""
        gaps = (*self.unknown.get(record.job.lane, ()), *record.past)
        gaps += tuple(Gap(skip.due_at, skip.due_at + timedelta(microseconds=1)) for skip in record.skips)
        if self.lost_through is None or record.job.after_crash == "rerun":
            return gaps
        return (*gaps, Gap(EARLIEST, self.lost_through + timedelta(microseconds=1)))


@dataclass(frozen=True, slots=True)
class Planned:
    """One fire, or a stretch of neighbours too old to be run one by one."""

    first: datetime
    last: datetime
    count: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows of one calendar after `cursor`. Written only if (version, cursor, until) still stand: a second
    leader's plan is a no-op, and so is one made before the calendar was given an end. A planned row is a
    cache of the calendar; it becomes a fact when it falls due."""

    job_id: str
    version: int
    cursor: datetime
    until: datetime | None
    rows: tuple[Planned, ...]
    next_at: datetime | None
    """The first fire after the last row; None: there is none."""
    backfill: str = ""
    """The rows are of this backfill of the job, in the order in which they are run, and `cursor` is its own."""


# --- fires and claims -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewFire:
    """A manual fire. `key` is made by the caller, so that a repeated request adds nothing."""

    key: str
    job_id: str
    args: Mapping[str, Json] | None = None
    if_active: Literal["queue", "refuse"] = "queue"
    by: str = ""
    repeats: Mapping[str, Json] | None = None
    """Of a retry: see `FireRecord.repeats`."""
    trace: Mapping[str, str] | None = None
    delay: float = 0.0
    """Seconds from now until it is due."""
    due_at: datetime | None = None
    """When it is due; a past moment is now."""


@dataclass(frozen=True, slots=True)
class Added:
    outcome: Literal["added", "exists", "active", "full", "no such job"]
    fire: FireRecord | None = None
    """The fire added, the one that exists, or the active one that stands in the way."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Asks for up to `room` due fires. Attempts are numbered: the number decided last is answered again."""

    replica: str
    number: int
    room: int
    term: int | None = None
    """The caller's term if it believes it is the leader; fires with `execute_on="leader"` need it to be current."""
    incarnation: int = 0
    """Of the store, as the caller knows it. If it is another one the caller must wait first."""
    server: str = ""
    ahead: int = 0
    """How many of the next moments the reply shall list."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one fire: the record carries owner and token."""

    fire: FireRecord
    job: Job
    free_at: datetime | None = None
    """Until when it waited for the run before it to end; None: it did not wait."""


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A job will be due for a replica at this moment of the ledger, which is the same for all that ask."""

    at: datetime
    leader_only: bool = False


@dataclass(frozen=True, slots=True)
class Claimed:
    claims: tuple[Claim, ...] = ()
    closed: tuple[FireRecord, ...] = ()
    """Rows this decision closed without a start, or added to."""
    wake_in: float | None = None
    """Seconds until something will be due for this replica; None: nothing is planned."""
    steps: int = 0
    closed_now: Mapping[str, int] = field(default_factory=dict)
    """By key of a closed row: how many of its fires this decision closed. Rows grow; each fire is counted once."""
    ahead: tuple[Upcoming, ...] = ()
    """What will be due for this replica next, one per job, the first in `wake_in` seconds. Fewer than were asked for:
    no more is planned. None at all: something is due now, or the store does not say."""


@dataclass(frozen=True, slots=True)
class Settle:
    key: str
    token: int
    state: State
    reason: str | None = None
    error: str | None = None
    output: str | None = None
    keep: Json = None
    """Becomes the job's `kept`; None: that stays as it is."""
    result: Json = None


@dataclass(frozen=True, slots=True)
class RetryLater:
    key: str
    token: int
    delay: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Another claim shall run it, with a higher token. Either the body never started, or it has ended."""

    key: str
    token: int
    started: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    key: str
    token: int
    progress: Mapping[str, Json] | None = None
    saves: bool = False
    checkpoint: Json = None
    output: str | None = None
    trace: str | None = None
    """The context of this run, for those that repeat it."""


# Of runs that an engine carries out (`rules/remote.py`).


@dataclass(frozen=True, slots=True)
class Start:
    """The start gate: a worker asks whether it may run the body. False: another has, or the token is gone."""

    key: str
    token: int
    worker: str
    """Unique per delivery."""
    heartbeat: float = 0.0
    ttl: float | None = None
    """Of its heartbeats; None: it sends none, and its engine's word is all there is."""


@dataclass(frozen=True, slots=True)
class Alive:
    """A heartbeat of the worker."""

    key: str
    token: int
    worker: str
    heartbeat: float
    ttl: float


@dataclass(frozen=True, slots=True)
class Adopt:
    """From now on this replica looks after the run, if the one that did is gone."""

    key: str
    token: int
    by: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The engine says that the run is over, and its worker does not. False: there is a reason to wait."""

    key: str
    token: int
    beats: int
    """Heartbeats of the worker, as a replica saw them unchanged for so many seconds of its own steady time, while the
    engine said so in so many polls."""
    seconds: float
    polls: int
    then: Settle | RetryLater | None = None
    """How it ended, if the engine knows."""
    error: str | None = None


RemoteUpdate = Start | Alive | Adopt | Missing
Update = Settle | RetryLater | GiveBack | Report | Start | Alive | Adopt | Missing


@dataclass(frozen=True, slots=True)
class RemoteRuns:
    """The runs of one engine that a replica looks after, and those whose replica is gone."""

    mine: tuple[Claim, ...] = ()
    orphaned: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Updated:
    accepted: tuple[bool, ...]
    """One per update. False: its token is not current; the run is fenced out and its result refused."""
    wake_in: float | None = None
    """Seconds until something will be due for this replica; an update may have moved that. 0: now. None: nothing is
    planned, or the replica claims no more."""
    steps: int = 0
    next_at: datetime | None = None
    """That moment, as `Claimed.ahead` lists it."""


@dataclass(frozen=True, slots=True)
class FireQuery:
    key: str | None = None
    job_id: str | None = None
    states: tuple[State, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 100
    keys: tuple[str, ...] = ()
    """Only these; none: any."""


@dataclass(frozen=True, slots=True)
class Home:
    """Which SQL database a store lives in, so that `fire.fenced` knows a connection that leads there."""

    kind: Literal["sqlite", "postgresql"]
    database: str
    """The file; or which database of which cluster."""
    fires: str
    """Where the rows of fires are: the table, or the schema."""


class Readable(ABC):
    """What can be read of a store: by the store itself, or by a view of it that leaves something out."""

    @property
    @abstractmethod
    def unreadable(self) -> UnreadableRows:
        """What this process has met in the store and could not read."""

    @abstractmethod
    async def roster(self) -> Roster: ...

    @abstractmethod
    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        """What can be known of these replicas faster than by waiting for their TTL."""

    @abstractmethod
    async def jobs(
        self, ids: Sequence[str] | None = None, page: JobPage | None = None
    ) -> tuple[JobRecord, ...]:
        """Those with these ids, or a page of all of them; without either, all. Not those that were removed."""

    @abstractmethod
    async def find_fires(self, query: FireQuery) -> tuple[FireRecord, ...]:
        """Newest first."""

    @abstractmethod
    async def history(self, job_id: str) -> tuple[JobEvent, ...]: ...

    @abstractmethod
    async def history_since(self, since: datetime) -> tuple[JobEvent, ...]:
        """The history of all jobs from then on, oldest first; of very many the latest."""


class Notices(ABC):
    """Rules of notifications, and the outbox where notices wait: they are written in the step that gives cause."""

    @abstractmethod
    async def put_rules(self, channel: str, rules: Sequence[NotificationRule]) -> bool:
        """What code declares for this channel, in place of what code declared before; whether that changed anything."""

    @abstractmethod
    async def change_rule(self, name: str, rule: NotificationRule | None, by: str) -> bool:
        """A rule made by hand, in place of the one that had this name; None removes it. Whether it changed anything."""

    @abstractmethod
    async def watch_jobs(
        self, by: str, term: int, page: JobPage | None = None, ids: Sequence[str] = ()
    ) -> Checked | None:
        """Look for what did not happen. None: `term` is not current."""

    @abstractmethod
    async def outbox(self, query: OutboxQuery) -> Outbox: ...

    @abstractmethod
    async def update_outbox(
        self, changes: Sequence[NoticeChange], report: Mapping[str, Json] | None = None
    ) -> tuple[bool, ...]:
        """Whether each was there. `report`: how the leader's channels fare."""


class Store(Readable):
    """See the module's docstring for the rules."""

    shared: bool = True
    """Whether replicas in other processes see it."""

    creates: bool = True
    """Whether `open` creates a namespace that does not exist, and converts one in an older format. Commands that look,
    or change what exists, set it to False: then `open` raises an error and leaves the place as it was."""

    remembers_empty_claims: bool = True
    """Whether a claim that found nothing is written down, and so counts as a sign of life."""

    may_lose_writes: bool = True
    """Whether it may come up again without something it has acknowledged. Then updates are counted, too."""

    descriptors: Sequence[int] = ()
    """Open files that the processes of jobs must hold open as well: while they live the replica is not proven dead."""

    home: Home | None = None
    """None: in no SQL database, or not known yet."""

    evidence_every: float | None = None
    """Seconds between two looks for evidence; None: there is never any."""

    assure_every: float | None = None
    """Seconds between two signs of life of the leader, by `assure`; None: it gives none."""

    counting: CountsFires | None = None
    """Counts fires in the database; None: pictures of them are drawn from the fires themselves."""

    proves_death: bool = True
    """Whether evidence can be proof of death. If not, it only says whether the leader is gone, which the leader itself
    need not ask."""

    def for_reading(self) -> Store | None:
        """What those who look may ask on an event loop of their own: a store with connections of its own to the same
        place, or this one if it can be asked on any loop. None: all must ask this one, on the control loop."""
        return None

    @cached_property
    def unreadable(self) -> UnreadableRows:
        return UnreadableRows()

    @property
    @abstractmethod
    def notices(self) -> Notices: ...

    async def preflight(self, name: str) -> Preflight:
        """What can be said of it before it is opened, without writing anything. Raises what opening would, if it cannot
        be reached or used. `name`: as users know the store."""
        return not_checked(name)

    async def contents(self) -> Contents:
        """What the namespace holds and in which format, without opening or converting it. Raises `NothingStored` if it
        holds nothing."""
        raise UsageError(f"a {type(self).__name__} has no stored format to upgrade")

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    # Presence and leadership.

    @abstractmethod
    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatReply: ...

    @abstractmethod
    async def leave(self, replica: str) -> None:
        """Nothing of this replica is running any more: give back what it holds, forget it."""

    async def evidence(self, replicas: Sequence[str]) -> Evidence:
        return Evidence()

    async def assure(self, replica: str) -> None:
        """A sign of life of the leader to all replicas that listen: while they hear it they need not ask for evidence.
        Only a hint, as silence is: evidence decides."""

    @abstractmethod
    async def sweep(self, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        """Expire dead replicas and their runs. None: `term` is not current."""

    # Jobs and planning.

    @abstractmethod
    async def put_jobs(self, jobs: Sequence[PutJob]) -> tuple[JobPut, ...]: ...

    @abstractmethod
    async def change_job(self, change: ChangeJob) -> JobRecord | None: ...

    @abstractmethod
    async def due_jobs(self, horizon: float, limit: int) -> DueJobs: ...

    @abstractmethod
    async def plan_fires(self, plans: Sequence[Plan]) -> tuple[bool, ...]: ...

    # Fires and claims.

    @abstractmethod
    async def add_fire(self, fire: NewFire) -> Added: ...

    @abstractmethod
    async def claim_fires(self, request: ClaimRequest) -> Claimed: ...

    @abstractmethod
    async def update_claims(self, replica: str, updates: Sequence[Update]) -> Updated: ...

    @abstractmethod
    async def cancel_fire(self, key: str, by: str = "", dead_token: int | None = None) -> FireRecord | None:
        """Close it if it is not running; otherwise ask its replica to end it.

        `dead_token`: a person says that the replica which runs it with this token is dead. If that run is still
        current it is settled as after a crash; nothing else is changed."""

    @abstractmethod
    async def remote_runs(self, replica: str, engine: str) -> RemoteRuns: ...

    # The ledger, beside what can be read of it.

    @abstractmethod
    async def prune(self, keep_seconds: float) -> int:
        """Forget final fires older than that. Tokens and high-water marks stay."""

    # Hints.

    @abstractmethod
    async def wait(self, seconds: float) -> bool:
        """Until a replica hints that there is something to do (True), or the time is up. Only ever a hint."""
