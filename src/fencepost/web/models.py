"""What the API takes and gives, as pydantic models: requests are checked against them, and the OpenAPI document is made
of them. The answers are the shapes that `--json` prints (`insight/views/shapes.py`); fields may be added,
never taken away."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fencepost.model import State
from fencepost.web.access import Role

ID = r"^[A-Za-z0-9_.:-]{1,200}$"
KEY = r"^[A-Za-z0-9_.:-]{1,200}[@!][A-Za-z0-9_.:-]{1,200}$"
CURSOR = r"^[A-Za-z0-9_.:~-]{1,300}$"
PLAIN_TEXT = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f]*$"

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Number = Annotated[int, Field(ge=0)]
JobState = Literal["idle", "paused", "orphaned", "running", "waiting", "queued", "unreadable"]
WhenGiven = Annotated[str, Field(min_length=1, max_length=64)]
"""An ISO 8601 time with an offset, or a duration such as `2h`."""


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


# --- what is asked ------------------------------------------------------------------------------------


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _split(value: Any) -> Any:
    return [part for each in _as_list(value) for part in str(each).split(",")]


Kind = Literal["fire", "job", "replica", "leader", "store", "beat"]


QUIET: Any = Field(None, description="204 instead of 401, which a browser would write into its console.")


class Page(Asked):
    model_config = ConfigDict(strict=False)  # a query has only texts

    limit: int = Field(100, ge=1, le=1000, description="Rows of a page.")
    cursor: str | None = Field(None, pattern=CURSOR, description="`next` of the page before.")


class FiresAsked(Page):
    job: str | None = Field(None, pattern=ID, description="Only of this job.")
    state: Annotated[list[State], BeforeValidator(_as_list)] = Field([], description="Only in these states.")
    since: WhenGiven | None = Field(None, description="Due at or after this ISO time, or so long ago: `2h`.")
    until: WhenGiven | None = Field(None, description="Due before this ISO time, or so long ago.")
    planned: bool = Field(False, description="Also fires that are planned and not due yet.")


class JobsAsked(Page):
    state: Annotated[list[JobState], BeforeValidator(_as_list)] = Field(
        [], description="Only jobs in one of these states."
    )
    q: str | None = Field(
        None, max_length=200, pattern=PLAIN_TEXT, description="Only jobs whose id contains this, in any case."
    )


class HistoryAsked(Asked):
    model_config = ConfigDict(strict=False)  # a query has only texts

    job: str | None = Field(None, pattern=ID, description="Only of this job.")
    by: str | None = Field(None, max_length=500, pattern=PLAIN_TEXT, description="Only by this caller.")
    since: WhenGiven = Field("1d", description="From this ISO time on, or so long ago: `2h`.")
    limit: int = Field(100, ge=1, le=1000)


class EventsAsked(Asked):
    job: Annotated[list[Annotated[str, Field(pattern=ID)]], BeforeValidator(_as_list)] = Field(
        [], max_length=50, description="Only fires and changes of these jobs."
    )
    kinds: Annotated[list[Kind], BeforeValidator(_split)] = Field(
        [], description="Only these kinds of events, between commas. `hello` and `reset` are always sent."
    )
    quiet: Literal["1"] | None = QUIET


class PipelineAsked(Asked):
    job: str | None = Field(None, pattern=ID, description="Which pipeline, where there are several.")
    quiet: Literal["1"] | None = QUIET


class TriggerAsked(Asked):
    args: dict[str, Any] | None = Field(None, description="In place of the job's own.")
    if_active: Literal["queue", "refuse"] = "queue"
    idempotency_key: str | None = Field(
        None, pattern=ID, description="The same key adds one fire however often it is sent."
    )


class RetryAsked(Asked):
    again: bool = Field(False, description="Its effects happen anew; a fire that has succeeded needs it.")
    idempotency_key: str | None = Field(
        None, pattern=ID, description="The same key adds one fire however often it is sent."
    )


class PauseAsked(Asked):
    reason: str = Field("", max_length=500, pattern=PLAIN_TEXT)
    until: WhenGiven | None = Field(
        None, description="Resume by itself at this ISO time, or after so long: `2h`."
    )


# --- what is answered ---------------------------------------------------------------------------------


class Attempt(Answer):
    token: Number
    replica: str
    started_at: Time
    finished_at: Time
    outcome: str
    error: str | None


class Fire(Answer):
    key: str
    job_id: str
    due_at: Time
    state: State
    reason: str | None
    refers_to: str | None
    count: Annotated[int, Field(ge=1)]
    first_due_at: Time
    last_due_at: Time
    scheduled: bool
    token: Number
    attempt: Number
    crashes: Number
    replica: str | None
    not_before: Time | None
    started_at: Time | None
    finished_at: Time | None
    error: str | None = Field(description="In lists and events its last line; one fire has all of it.")
    error_line: str | None = Field(description="Of a traceback: the exception.")
    late_seconds: float | None = Field(description="From due to its first start.")
    by: str | None
    asked_by: str | None = Field(description="Who triggered or retried it; the same as `by`.")
    asked_at: Time | None = Field(description="When it was triggered or retried; null: it is scheduled.")
    retry_of: str | None = Field(description="The key of the fire that it repeats.")
    effect_key: str = Field(description="Under which its effects happen once: a retry shares it.")
    cancelled_by: str | None
    args: dict[str, Any] | None
    cancel_requested: bool
    attempts: list[Attempt]


class WholeFire(Fire):
    checkpoint: Any
    progress: dict[str, Any] | None
    output: str | None = Field(description="What it logged and printed: the end of it.")
    result: Any = Field(description="What its body returned, if that is JSON of at most 16 KB.")


class FirePage(Answer):
    items: list[Fire]
    next: str | None = Field(description="Cursor of the next page; null: there is none.")


class Leader(Answer):
    replica: str
    host: str
    pid: int
    term: Number
    state: str


class Replica(Answer):
    replica: str
    host: str
    pid: int
    state: Literal["alive", "draining", "overdue", "dead"]
    leader: bool
    version: str
    joined_at: Time
    renewed_at: Time = Field(description="When the store last heard of it.")
    running: list[str]
    lingering: list[str]
    tasks: list[str]


class Pause(Answer):
    since: Time
    until: Time | None
    reason: str
    by: str


class ActiveFire(Answer):
    key: str
    state: State
    replica: str | None
    replica_state: str | None
    started_at: Time | None
    attempt: Number
    progress: dict[str, Any] | None


class Outcome(Answer):
    key: str
    state: State
    reason: str | None
    due_at: Time
    started_at: Time | None
    finished_at: Time | None
    replica: str | None


class Origin(Answer):
    module: str | None
    distribution: str | None = Field(description="The application: an installed distribution, or a project.")
    file: str | None
    command: str | None = Field(description="Of a job without code, with secrets masked.")
    told: str = Field(description="In words.")


class Conflict(Answer):
    replica: str
    origin: Origin | None


class Run(Outcome):
    started_at: Time
    finished_at: Time
    replica: str
    late_seconds: float = Field(description="From due to started.")
    error_line: str | None


class UnreadableRow(Answer):
    kind: Literal["job", "fire", "target", "event", "replica", "lease"]
    key: str
    job_id: str | None
    why: str
    sets_job_aside: bool = Field(description="Nothing of the job runs until the row can be read.")
    known_elsewhere: bool = Field(description="The row is sound; this host lacks its zone or trigger type.")
    remedy: str


class Job(Answer):
    id: str
    task: str
    schedule: str | None
    state: str
    states: list[str]
    paused: Pause | None
    orphaned: bool
    orphaned_since: Time | None
    active: list[ActiveFire]
    last: Outcome | None = Field(description="Its newest fire that has ended, whether it ran or not.")
    last_run: Run | None = Field(description="Its run that ended last.")
    last_success_at: Time | None
    failures_in_a_row: Number = Field(description="Runs that failed or were lost since the last success.")
    next_run_at: Time | None
    execute_on: Literal["any", "leader"]
    source: Literal["code", "api"] = Field(description="Code declares it, or it was made by hand.")
    origin: Origin | None = Field(
        description="Of the code that declares it; made by hand: of the code it is held against."
    )
    conflicts: list[Conflict] = Field(description="Live replicas that declare it from another origin.")
    unreadable: UnreadableRow | None = Field(description="What of it cannot be read; null: nothing.")


class JobPage(Answer):
    items: list[Job]
    next: str | None


class HistoryEvent(Answer):
    at: Time
    kind: str
    since: Time
    until: Time | None
    trigger: dict[str, Any] | None
    note: str
    by: str


class Action(HistoryEvent):
    job_id: str
    fire: str | None = Field(description="The key of the fire; null: it was done to the job.")


class Actions(Answer):
    items: list[Action]
    more: bool = Field(description="Something was left out: give a later `since`, or a job.")
    fires_since: Time = Field(description="From when on triggers, retries and cancels are listed.")


class WholeJob(Job):
    target: str
    trigger: dict[str, Any] | None
    args: dict[str, Any]
    overlap: str
    misfire: str
    misfire_after: float
    retry: dict[str, Any] | None
    timeout: float | None
    after_crash: str
    crash_attempts: int
    created_at: Time
    changed_at: Time
    history: list[HistoryEvent]


class Status(Answer):
    store: str
    now: Time
    leader: Leader | None
    replicas: list[Replica]
    more_jobs: bool = Field(description="There are more than are listed here: `/api/v1/jobs` has them all.")
    unreadable: list[UnreadableRow] = Field(description="Rows that this process could not read.")
    store_answers: bool = Field(description="False: this is what was read last.")
    as_of: Time = Field(description="The store's time of the reading.")
    age_seconds: float = Field(description="How old the reading is; 0 while the store answers.")
    jobs: list[Job]


class Replicas(Answer):
    now: Time
    leader: Leader | None
    items: list[Replica]


class Me(Answer):
    name: str
    role: Role
    jobs: list[str] = Field(description="Patterns of the job ids that it sees; empty: every job.")


class JobPause(Answer):
    job_id: str
    paused: Pause | None


class SchedulerStatus(Answer):
    ready: bool
    reason: str | None
    replica: str | None
    is_leader: bool
    running: Number
    store: str
    store_answers: bool
    as_of: Time | None = Field(description="The store's time of the reading; null: there is none.")
    age_seconds: float | None = Field(description="How old the reading is; 0 while the store answers.")
    leader: Leader | None
    replicas: list[Replica]
    jobs: dict[str, int] = Field(description="How many are in which state.")


class PipelineStatus(Answer):
    job_id: str
    status: Literal["idle", "running", "failed"]
    phase: str | None
    message: str | None
    blocking_maintenance: bool
    processed: float | None
    total: float | None
    eta_seconds: float | None
    run_id: str | None
    trigger: str | None
    started_at: Time | None
    maintenance_started_at: Time | None
    updated_at: Time | None
    finished_at: Time | None
    last_success_at: Time | None
    last_error: str | None
    next_run_at: Time | None
    data_updated_at: Time | None
    run_type: str | None
    refresh_scope_tables_rewritten: list[str] | None
    refresh_scope_tables_reused: list[str] | None
    now: Time


class Alive(Answer):
    alive: bool


class Ready(Answer):
    ready: bool
    reason: str | None = None


class ProblemShape(Answer):
    type: str
    title: str
    status: int
    detail: str
