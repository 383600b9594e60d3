"""What the API takes, as pydantic models, and the words that all models share: requests are checked against them, and
the OpenAPI document is made of them. What it answers is in `answers.py`; queries and answers of the pictures are in
`picture_models.py`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from fencepost.model import State
from fencepost.model.job_fields import HIGHEST_PRIORITY
from fencepost.scheduler.written import WORDS

ID = r"^[A-Za-z0-9_.:-]{1,200}$"
KEY = r"^[A-Za-z0-9_.:-]{1,200}[@!][A-Za-z0-9_.:-]{1,200}$"
CURSOR = r"^[A-Za-z0-9_.:~-]{1,300}$"
PLAIN_TEXT = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f]*$"

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Number = Annotated[int, Field(ge=0)]
JobState = Literal["idle", "paused", "orphaned", "running", "waiting", "queued", "unreadable"]
WhenGiven = Annotated[str, Field(min_length=1, max_length=64)]
"""An ISO 8601 time with an offset, or a duration such as `2h`."""


class AskedModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class AnswerModel(BaseModel):
    model_config = ConfigDict(extra="allow")


# --- what is asked ------------------------------------------------------------------------------------


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _split(value: Any) -> Any:
    return [part for each in _as_list(value) for part in str(each).split(",")]


Kind = Literal["fire", "job", "replica", "leader", "store", "beat"]


QUIET: Any = Field(None, description="204 instead of 401, which a browser would write into its console.")


class PageAsked(AskedModel):
    model_config = ConfigDict(strict=False)  # a query has only texts

    limit: int = Field(100, ge=1, le=1000, description="Rows of a page.")
    cursor: str | None = Field(None, pattern=CURSOR, description="`next` of the page before.")


class FiresAsked(PageAsked):
    job: str | None = Field(None, pattern=ID, description="Only of this job.")
    state: Annotated[list[State], BeforeValidator(_as_list)] = Field([], description="Only in these states.")
    since: WhenGiven | None = Field(None, description="Due at or after this ISO time, or so long ago: `2h`.")
    until: WhenGiven | None = Field(None, description="Due before this ISO time, or so long ago.")
    planned: bool = Field(False, description="Also fires that are planned and not due yet.")


class JobsAsked(PageAsked):
    state: Annotated[list[JobState], BeforeValidator(_as_list)] = Field(
        [], description="Only jobs in one of these states."
    )
    q: str | None = Field(
        None, max_length=200, pattern=PLAIN_TEXT, description="Only jobs whose id contains this, in any case."
    )
    tag: Annotated[list[Annotated[str, Field(max_length=50)]], BeforeValidator(_as_list)] = Field(
        [], max_length=20, description="Only jobs with all of these tags."
    )
    owner: str | None = Field(
        None, max_length=200, pattern=PLAIN_TEXT, description="Only jobs of this owner, in any case."
    )
    priority: str | None = Field(
        None,
        pattern=r"^(-?\d{1,3}|-?\d{1,3}\.\.(-?\d{1,3})?|\.\.-?\d{1,3})$",
        description="Only jobs with this priority: `5`, `5..` (and above), `..-1` (and below), `1..9`.",
    )


class HistoryAsked(AskedModel):
    model_config = ConfigDict(strict=False)  # a query has only texts

    job: str | None = Field(None, pattern=ID, description="Only of this job.")
    by: str | None = Field(None, max_length=500, pattern=PLAIN_TEXT, description="Only by this caller.")
    since: WhenGiven = Field("1d", description="From this ISO time on, or so long ago: `2h`.")
    limit: int = Field(100, ge=1, le=1000)


class EventsAsked(AskedModel):
    job: Annotated[list[Annotated[str, Field(pattern=ID)]], BeforeValidator(_as_list)] = Field(
        [], max_length=50, description="Only fires and changes of these jobs."
    )
    kinds: Annotated[list[Kind], BeforeValidator(_split)] = Field(
        [], description="Only these kinds of events, between commas. `hello` and `reset` are always sent."
    )
    quiet: Literal["1"] | None = QUIET


class PipelineAsked(AskedModel):
    job: str | None = Field(None, pattern=ID, description="Which pipeline, where there are several.")
    quiet: Literal["1"] | None = QUIET


class TriggerAsked(AskedModel):
    args: dict[str, Any] | None = Field(None, description="In place of the job's own.")
    if_active: Literal["queue", "refuse"] = "queue"
    idempotency_key: str | None = Field(
        None, pattern=ID, description="The same key adds one fire however often it is sent."
    )
    delay: WhenGiven | None = Field(None, alias="in", description="Run it once, after so long: `10m`.")
    at: WhenGiven | None = Field(None, description="Run it once, at this ISO time.")


class BackfillAsked(AskedModel):
    since: WhenGiven = Field(
        alias="from", description="The first due time: an ISO time, or so long ago: `7d`."
    )
    until: WhenGiven | None = Field(None, alias="to", description="Before this time; null: now.")
    limit: int = Field(1, ge=1, le=100, description="How many may run at once.")
    reverse: bool = Field(False, description="The newest first.")
    only_missing: bool = Field(False, description="Pass over what the ledger has as succeeded.")
    name: str | None = Field(
        None,
        pattern=ID,
        max_length=80,
        description="The same name is one backfill however often it is asked for.",
    )


class SkipAsked(AskedModel):
    at: WhenGiven = Field(description="Its due time, as an ISO time.")
    reason: str = Field("", max_length=500, pattern=PLAIN_TEXT)
    undo: bool = Field(False, description="Let it run after all, as long as it lies ahead.")


class RetryAsked(AskedModel):
    again: bool = Field(False, description="Its effects happen anew; a fire that has succeeded needs it.")
    idempotency_key: str | None = Field(
        None, pattern=ID, description="The same key adds one fire however often it is sent."
    )


class StartAsked(AskedModel):
    token: Number = Field(0, description="Of the run, as its order has it.")
    worker: str = Field("", pattern=ID, description="Unique per delivery of an order.")
    heartbeat: float = Field(
        0.0, ge=0, description="Seconds between two heartbeats that the worker will send."
    )
    ttl: float | None = Field(None, gt=0, description="Seconds each of them holds; null: it sends none.")


class UpdateAsked(AskedModel):
    token: Number = Field(0, description="Of the run, as its order has it.")
    worker: str = Field("", pattern=ID, description="As at the start.")
    update: dict[str, Any] = Field(
        default_factory=dict,
        description="A heartbeat, a report or an outcome, as `fencepost.engine_worker` sends it.",
    )


class PauseAsked(AskedModel):
    reason: str = Field("", max_length=500, pattern=PLAIN_TEXT)
    until: WhenGiven | None = Field(
        None, description="Resume by itself at this ISO time, or after so long: `2h`."
    )


Duration = Annotated[str, Field(min_length=1, max_length=64)] | float | None
"""Seconds, or text such as `5m`."""
Moment = Annotated[str, Field(max_length=64)] | None
Words = Annotated[str, Field(max_length=2000)]


class _JobWritten(AskedModel):
    task: str | None = Field(None, description="The code to run: a task that a replica has. Default: the id.")
    every: Duration = None
    cron: Words | None = None
    rrule: Words | None = None
    at: Annotated[str, Field(max_length=64)] | Annotated[list[str], Field(max_length=1000)] | None = None
    tz: Annotated[str, Field(max_length=64)] | None = None
    anchor: Moment = None
    start: Moment = None
    end: Moment = None
    trigger: dict[str, Any] | None = Field(
        None, description="In place of every, cron, rrule and at: as an answer has it. Null: no schedule."
    )
    args: dict[str, Any] | None = None
    misfire_after: Duration = None
    timeout: Duration = None
    retry: dict[str, Any] | None = None
    crash_attempts: int | None = None
    after: Annotated[str, Field(max_length=200)] | Annotated[list[str], Field(max_length=20)] | None = Field(
        None, description="Jobs that it follows, in place of a schedule of its own."
    )
    on: Literal["succeeded", "ended"] | None = Field(None, description="Of `after`: what it waits for.")
    priority: Annotated[int, Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY)] | None = None
    tags: Annotated[list[str], Field(max_length=20)] | None = None
    owner: str | None = None
    description: str | None = None


JobWritten = create_model(  # type: ignore[call-overload]
    "JobWritten",
    __base__=_JobWritten,
    **{name: (Any, None) for name in WORDS if name not in _JobWritten.model_fields},
)
"""A job as it is written down (`scheduler/written.py` reads it): every word that code takes is taken here."""


class ChangeAsked(AskedModel):
    model_config = ConfigDict(strict=False)  # a query has only texts

    dry_run: bool = Field(False, description="Check it and say what would change. Nothing is written.")
