"""What the API of the dashboard takes and gives (see `models.py`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from fencepost.model import State
from fencepost.web.answers import FireModel, JobModel, Leader, PauseModel, ReplicaModel, WholeFire
from fencepost.web.models import (
    ID,
    KEY,
    PLAIN_TEXT,
    AnswerModel,
    AskedModel,
    JobState,
    Number,
    PageAsked,
    Time,
    WhenGiven,
    _as_list,
)

MOST_AT_ONCE = 100
"""Jobs or fires that one request acts on."""

Counts = dict[str, Number]
"""By state."""


class Query(AskedModel):
    model_config = ConfigDict(strict=False)  # a query has only texts


# --- what is asked ------------------------------------------------------------------------------------


class OverviewAsked(Query):
    span: WhenGiven = Field("1h", description="How far back: `10m` to `30d`.")


class LanesAsked(PageAsked):
    limit: int = Field(40, ge=1, le=100, description="Jobs of a page.")
    span: WhenGiven = Field("1h", description="From the left to the right edge: `10m` to `30d`.")
    until: WhenGiven | None = Field(
        None, description="The right edge: an ISO time, or so long ago. Without it a fifth lies ahead of now."
    )
    columns: int = Field(240, ge=10, le=600, description="The most buckets a lane is cut into.")
    state: Annotated[list[JobState], BeforeValidator(_as_list)] = Field(
        [], description="Only jobs in one of these states."
    )
    q: str | None = Field(
        None, max_length=200, pattern=PLAIN_TEXT, description="Only jobs whose id contains this, in any case."
    )


class SummaryAsked(Query):
    bucket: WhenGiven = Field("5m", description="How wide a bucket is: `1s` to `30d`.")
    since: WhenGiven = Field("1h", description="Due at or after this ISO time, or so long ago: `2h`.")
    until: WhenGiven | None = Field(None, description="Due before this ISO time, or so long ago.")
    job: str | None = Field(None, pattern=ID, description="Only of this job.")


class WhyAsked(Query):
    at: WhenGiven | None = Field(
        None, description="`03:00`, read in the job's zone, or an ISO time; without it the latest fire."
    )


class PreviewAsked(Query):
    count: int = Field(10, ge=1, le=1000, description="How many fires.")
    after: WhenGiven | None = Field(None, description="After this ISO time; without it after now.")


class AuditAsked(Query):
    since: WhenGiven | None = Field(None, description="Due at or after this ISO time, or so long ago.")
    until: WhenGiven | None = Field(None, description="Due before this ISO time, or so long ago.")
    job: str | None = Field(None, pattern=ID, description="Only of this job.")


class TermsAsked(Query):
    limit: int = Field(100, ge=1, le=1000)
    before: int | None = Field(None, ge=1, le=2**53, description="Only terms with a lower number.")


Ids = Annotated[list[Annotated[str, Field(pattern=ID)]], Field(max_length=MOST_AT_ONCE)]


class PauseJobsAsked(AskedModel):
    ids: Ids = Field([], description="The jobs.")
    reason: str = Field("", max_length=500, pattern=PLAIN_TEXT)
    until: WhenGiven | None = Field(
        None, description="Resume by themselves at this ISO time, or after so long: `2h`."
    )


class ResumeJobsAsked(AskedModel):
    ids: Ids = Field([], description="The jobs.")


class TriggerJobsAsked(AskedModel):
    ids: Ids = Field([], description="The jobs.")
    if_active: Literal["queue", "refuse"] = "queue"


class RetryFiresAsked(AskedModel):
    keys: Annotated[list[Annotated[str, Field(pattern=KEY)]], Field(max_length=MOST_AT_ONCE)] = Field(
        [], description="The fires."
    )
    again: bool = Field(False, description="Their effects happen anew; fires that have succeeded need it.")


# --- what is answered ---------------------------------------------------------------------------------


class NeedModel(AnswerModel):
    level: Literal["problem", "warning"]
    kind: str
    what: str
    detail: str
    action: str = Field(description="What mends it: run, resume, retry; or the page that shows more.")
    job_id: str | None
    fire: str | None
    count: Number


class LatenessModel(AnswerModel):
    p50_seconds: float | None
    p99_seconds: float | None
    worst_seconds: float | None
    runs: Number = Field(description="Of so many runs: the newest of the window.")


class OverviewModel(AnswerModel):
    store: str
    now: Time
    since: Time
    until: Time
    verdict: Literal["yes", "no", "nothing"] = Field(description="Is every fire accounted for?")
    sentence: str
    due: Number
    fates: Counts
    counted_since: Time = Field(description="Later than `since`: there were too many to count them all.")
    overdue: Number = Field(description="Due for longer than they may wait, and not decided.")
    needs: list[NeedModel]
    more_needs: Number
    lateness: LatenessModel
    leader: Leader | None
    replicas: list[ReplicaModel]
    jobs: Counts
    store_seconds: float = Field(description="How long the store took to answer a short question.")


class MarkModel(AnswerModel):
    at: Time = Field(description="Where its bucket begins.")
    key: str
    state: State
    reason: str | None
    refers_to: str | None
    due_at: Time
    last_due_at: Time
    started_at: Time | None
    finished_at: Time | None
    late_seconds: float | None
    attempt: Number
    replica: str | None
    error_line: str | None
    count: Number = Field(description="Fires known in the bucket; the worst of them is shown.")
    states: Counts
    more: bool = Field(description="The bucket has more fires than were counted.")


class TickModel(AnswerModel):
    at: Time
    due_at: Time = Field(description="The first fire in the bucket.")
    more: bool
    paused: bool = Field(description="As things stand it will be skipped: the job is paused then.")


class LaneModel(AnswerModel):
    job: JobModel
    marks: list[MarkModel] = Field(description="Oldest first, at most one for each bucket.")
    planned: list[TickModel] = Field(description="Soonest first, at most one for each bucket.")
    exact: bool = Field(description="Every fire is counted; else full buckets are sampled.")


class LanesModel(AnswerModel):
    now: Time
    since: Time
    until: Time
    width_seconds: float = Field(description="Of a bucket.")
    failures_since: Time = Field(
        description="In sampled lanes, what did not succeed is shown for sure from then on."
    )
    next: str | None
    items: list[LaneModel]


class BucketModel(AnswerModel):
    at: Time
    states: Counts


class SummaryModel(AnswerModel):
    now: Time
    since: Time
    until: Time
    bucket_seconds: float
    counted_since: Time
    total: Counts
    items: list[BucketModel] = Field(description="Oldest first, without those that have no fires.")


class Why(AnswerModel):
    job_id: str
    asked: Time
    zone: str | None = Field(description="The zone in which the moment was read.")
    due_at: Time | None
    verdict: str
    answer: str = Field(description="In words.")
    fire: FireModel | None
    refers_to: FireModel | None = Field(description="The fire that the reason names.")
    before: Time | None
    after: Time | None


class LeftOutModel(AnswerModel):
    at: Time
    why: str = Field(description="The holiday, the blackout or the exception.")
    moved_to: Time | None = Field(description="When it fires instead; null: it does not.")
    count: Number = Field(description="How many in a row have this reason; `at` is the first.")


class PlannedFire(AnswerModel):
    due_at: Time
    local: str | None = Field(description="By the clock of the job's zone; null: it has none.")
    paused: bool = Field(description="As things stand it will be skipped: the job is paused then.")
    left_out: list[LeftOutModel] = Field(description="What the calendar leaves out since the fire before.")


class Preview(AnswerModel):
    job_id: str
    schedule: str | None
    zone: str | None
    items: list[PlannedFire]


class AuditProgress(AnswerModel):
    doing: str
    done: Number
    total: Number | None


class AuditReport(AnswerModel):
    clean: bool
    now: Time
    since: Time
    until: Time
    jobs: Number
    expected: Number
    ran: Number
    skipped: Number
    missed: Number
    lost: Number
    cancelled: Number
    pending: Number
    found: Counts
    unaccounted: list[dict[str, Any]]
    doubled: list[dict[str, Any]]


class Audit(AnswerModel):
    state: Literal["running", "done"] = Field(description="Running: ask again; it goes on.")
    progress: AuditProgress | None
    verdict: str | None = Field(description="In words.")
    report: AuditReport | None


class FindingModel(AnswerModel):
    section: str
    level: Literal["ok", "warning", "problem"]
    what: str
    remedy: str | None


class Doctor(AnswerModel):
    ok: bool
    store: str
    verdict: str
    findings: list[FindingModel]


class TermModel(AnswerModel):
    number: Number
    replica: str
    since: Time
    until: Time | None = Field(description="When the next one began, or it resigned; null: it lasts.")


class TermsModel(AnswerModel):
    now: Time
    items: list[TermModel] = Field(description="Newest first.")
    next: int | None = Field(description="`before` of the next page; null: there is none.")


class LimitCarried(AnswerModel):
    job_id: str
    size: str = Field(description="`2`: so many runs at once; `100/m`: so many starts in any minute.")
    full: str = Field(description="What becomes of a fire that finds it full: `queue` or `skip`.")


class LimitUsed(AnswerModel):
    key: str
    replica: str | None
    started_at: Time | None


class LimitStands(AnswerModel):
    name: str
    holds: str = Field(description="The size in force: the smallest that is declared.")
    declared: list[LimitCarried]
    running: list[LimitUsed]
    waiting: list[str] = Field(description="Jobs with a fire that waits for it.")


class Limits(AnswerModel):
    items: list[LimitStands] = Field(description="By name.")


class Done(AnswerModel):
    ok: bool
    status: int = Field(description="As a request for this one alone would be answered.")
    detail: str | None = Field(description="Why not.")


class JobDone(Done):
    id: str
    paused: PauseModel | None = None


class FireDone(Done):
    id: str = Field(description="What was asked for: a job, or a fire.")
    fire: WholeFire | None


class JobsDone(AnswerModel):
    items: list[JobDone] = Field(description="In the order asked for.")


class FiresDone(AnswerModel):
    items: list[FireDone] = Field(description="In the order asked for.")
