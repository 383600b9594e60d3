"""What the API answers, as pydantic models. They are the shapes that `--json` prints (`insight/views/shapes.py`);
fields may be added, never taken away. A model of a value that has a class in another room is called as that, with
`Model`, which the OpenAPI document leaves out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from fencepost.model import State
from fencepost.web.access import Role
from fencepost.web.models import AnswerModel, Number, Time


class JobChanged(AnswerModel):
    job_id: str
    outcome: Literal["created", "changed", "unchanged"]
    dry_run: bool
    version: str = Field(description="For `If-Match` of the next change.")
    before: dict[str, Any] | None = Field(description="The fields that differ, as they were; null: no job.")
    after: dict[str, Any]
    fires_before: list[Time] = Field(description="The next ten fires, as things were.")
    fires_after: list[Time] = Field(description="The next ten fires, as things are after it.")


class JobRemoved(AnswerModel):
    job_id: str
    removed_at: Time
    comes_back: bool = Field(
        description="A live replica declares it in code: the next start stores it again."
    )


class AttemptModel(AnswerModel):
    token: Number
    replica: str
    started_at: Time
    finished_at: Time
    outcome: str
    error: str | None


class BackfillModel(AnswerModel):
    job_id: str
    name: str
    state: Literal["running", "paused", "done", "cancelled"]
    since: Time
    until: Time
    limit: Number
    reverse: bool
    only_missing: bool
    total: Number = Field(description="Due times in the range.")
    passed: Number = Field(description="Due times that needed no run.")
    added: Number = Field(description="Fires added so far.")
    ended: dict[str, Number] = Field(description="Fires that have ended, by state.")
    left: Number
    by: str
    note: str
    created_at: Time | None
    finished_at: Time | None


class Backfills(AnswerModel):
    items: list[BackfillModel]


class SkipModel(AnswerModel):
    due_at: Time
    reason: str
    by: str


class Skips(AnswerModel):
    job_id: str
    skips: list[SkipModel]


class FireModel(AnswerModel):
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
    late_seconds: float | None = Field(
        description="From due, and the jitter drawn for it, to its first start."
    )
    jitter_seconds: float = Field(description="By how much its start was put off by chance.")
    by: str | None
    asked_by: str | None = Field(description="Who triggered or retried it; the same as `by`.")
    asked_at: Time | None = Field(description="When it was triggered or retried; null: it is scheduled.")
    retry_of: str | None = Field(description="The key of the fire that it repeats.")
    backfill: str | None = Field(description="The name of the backfill that it belongs to.")
    effect_key: str = Field(description="Under which its effects happen once: a retry shares it.")
    cancelled_by: str | None
    args: dict[str, Any] | None
    cancel_requested: bool
    attempts: list[AttemptModel]


class WholeFire(FireModel):
    checkpoint: Any
    progress: dict[str, Any] | None
    output: str | None = Field(description="What it logged and printed: the end of it.")
    result: Any = Field(description="What its body returned, if that is JSON of at most 16 KB.")


class FirePage(AnswerModel):
    items: list[FireModel]
    next: str | None = Field(description="Cursor of the next page; null: there is none.")


class Leader(AnswerModel):
    replica: str
    host: str
    pid: int
    term: Number
    state: str


class ReplicaModel(AnswerModel):
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
    pools: list[str] = Field(description="Whose jobs it runs.")
    tasks: list[str]


class PauseModel(AnswerModel):
    since: Time
    until: Time | None
    reason: str
    by: str


class ActiveFire(AnswerModel):
    key: str
    state: State
    replica: str | None
    replica_state: str | None
    started_at: Time | None
    attempt: Number
    progress: dict[str, Any] | None


class OutcomeModel(AnswerModel):
    key: str
    state: State
    reason: str | None
    due_at: Time
    started_at: Time | None
    finished_at: Time | None
    replica: str | None


class OriginModel(AnswerModel):
    module: str | None
    distribution: str | None = Field(description="The application: an installed distribution, or a project.")
    file: str | None
    command: str | None = Field(description="Of a job without code, with secrets masked.")
    told: str = Field(description="In words.")


class ConflictModel(AnswerModel):
    replica: str
    origin: OriginModel | None


class RunModel(OutcomeModel):
    started_at: Time
    finished_at: Time
    replica: str
    late_seconds: float = Field(description="From due to started.")
    error_line: str | None


class UnreadableRow(AnswerModel):
    kind: Literal["job", "fire", "target", "event", "replica", "lease"]
    key: str
    job_id: str | None
    why: str
    sets_job_aside: bool = Field(description="Nothing of the job runs until the row can be read.")
    known_elsewhere: bool = Field(description="The row is sound; this host lacks its zone or trigger type.")
    remedy: str


class JobModel(AnswerModel):
    id: str
    task: str
    schedule: str | None
    after: list[str] = Field(description="The jobs that it follows.")
    state: str
    states: list[str]
    paused: PauseModel | None
    orphaned: bool
    orphaned_since: Time | None
    active: list[ActiveFire]
    last: OutcomeModel | None = Field(description="Its newest fire that has ended, whether it ran or not.")
    last_run: RunModel | None = Field(description="Its run that ended last.")
    last_success_at: Time | None
    failures_in_a_row: Number = Field(description="Runs that failed or were lost since the last success.")
    next_run_at: Time | None
    execute_on: str = Field(description="any, leader, or a pool.")
    pool: str
    engine: str | None = Field(description="What carries out its runs; null: the replica that claims them.")
    priority: int = Field(description="Of what is due, a higher one runs first.")
    tags: list[str]
    owner: str = Field(description="Whom to ask; empty: not given.")
    source: Literal["code", "api"] = Field(description="Code declares it, or it was made by hand.")
    origin: OriginModel | None = Field(
        description="Of the code that declares it; made by hand: of the code it is held against."
    )
    conflicts: list[ConflictModel] = Field(description="Live replicas that declare it from another origin.")
    unreadable: UnreadableRow | None = Field(description="What of it cannot be read; null: nothing.")


class JobPageModel(AnswerModel):
    items: list[JobModel]
    next: str | None


class HistoryEvent(AnswerModel):
    at: Time
    kind: str
    since: Time
    until: Time | None
    trigger: dict[str, Any] | None
    note: str
    by: str
    before: dict[str, Any] | None = Field(
        None, description="Of a change: the fields that differ, as they were."
    )
    after: dict[str, Any] | None = None


class Action(HistoryEvent):
    job_id: str
    fire: str | None = Field(description="The key of the fire; null: it was done to the job.")


class Actions(AnswerModel):
    items: list[Action]
    more: bool = Field(description="Something was left out: give a later `since`, or a job.")
    fires_since: Time = Field(description="From when on triggers, retries and cancels are listed.")


class WholeJob(JobModel):
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
    description: str
    created_at: Time
    changed_at: Time
    args_schema: dict[str, Any] | None = Field(
        None, description="JSON schema of its arguments; null: this process does not know its code."
    )
    history: list[HistoryEvent]


class Status(AnswerModel):
    store: str
    now: Time
    leader: Leader | None
    replicas: list[ReplicaModel]
    more_jobs: bool = Field(description="There are more than are listed here: `/api/v1/jobs` has them all.")
    unreadable: list[UnreadableRow] = Field(description="Rows that this process could not read.")
    store_answers: bool = Field(description="False: this is what was read last.")
    as_of: Time = Field(description="The store's time of the reading.")
    age_seconds: float = Field(description="How old the reading is; 0 while the store answers.")
    jobs: list[JobModel]


class ReplicasModel(AnswerModel):
    now: Time
    leader: Leader | None
    items: list[ReplicaModel]


class Me(AnswerModel):
    name: str
    role: Role
    jobs: list[str] = Field(description="Patterns of the job ids that it sees; empty: every job.")


class Started(AnswerModel):
    key: str
    token: Number
    claim: dict[str, Any]
    kept: Any


class WorkerUpdated(AnswerModel):
    key: str
    token: Number
    accepted: bool
    cancel_requested: bool


class JobPause(AnswerModel):
    job_id: str
    paused: PauseModel | None


class SchedulerStatus(AnswerModel):
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
    replicas: list[ReplicaModel]
    jobs: dict[str, int] = Field(description="How many are in which state.")


class PipelineStatus(AnswerModel):
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


class AliveModel(AnswerModel):
    alive: bool


class Ready(AnswerModel):
    ready: bool
    reason: str | None = None


class ProblemShape(AnswerModel):
    type: str
    title: str
    status: int
    detail: str
