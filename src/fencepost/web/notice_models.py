"""Notifications and their rules, as the API takes and answers them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from fencepost.web.models import ID, PLAIN_TEXT, AnswerModel, AskedModel, Number, Time


class NotificationsAsked(AskedModel):
    model_config = ConfigDict(strict=False)  # a query has only texts

    channel: str | None = Field(None, pattern=ID, description="Only of this channel.")
    aside: bool = Field(False, description="Those that could not be delivered, in place of those that wait.")
    limit: int = Field(100, ge=1, le=1000, description="Rows of a page.")
    cursor: str | None = Field(
        None, pattern=r"^([0-9a-f]{2}){1,500}$", description="`next` of the page before."
    )


class RetryNotifications(AskedModel):
    channel: str | None = Field(None, pattern=ID, description="Without: of all channels.")
    id: str | None = Field(
        None, pattern=ID, description="Only this notice; without: all that were set aside."
    )


class RuleAsked(AskedModel):
    channel: str = Field(pattern=ID, description="A channel that code or `fencepost.toml` declares.")
    on: list[Annotated[str, Field(max_length=100)]] = Field(
        min_length=1, max_length=20, description='Causes: `["failed", "recovered", "late 5m"]`.'
    )
    jobs: str | None = Field(
        None, min_length=1, max_length=300, pattern=PLAIN_TEXT, description="`report-*`, `tag:…`; null: all."
    )
    quiet: str | None = Field(None, max_length=100, description="`22:00-07:00 Europe/Zurich`.")
    digest: str | None = Field(None, max_length=50, description="Gather notices so long: `15m`.")


class NoticeShape(AnswerModel):
    id: str = Field(description="Stable: a notice that is delivered again has the same.")
    channel: str
    cause: str
    job_id: str
    fire: str | None
    state: str
    reason: str | None
    error: str | None
    at: Time
    count: Number
    attempts: Number
    last_error: str | None = Field(description="Why the last attempt failed.")
    set_aside_at: Time | None


class RuleShape(AnswerModel):
    name: str | None = Field(description="Of a rule made by hand; null: code declares it.")
    source: Literal["code", "api"]
    channel: str
    on: list[str]
    jobs: str | None = Field(description="null: all.")
    quiet: str | None
    digest_seconds: float | None
    by: str | None = Field(description="Who made it by hand.")


class RuleChangeShape(AnswerModel):
    name: str
    at: Time
    by: str
    rule: RuleShape | None = Field(description="From then on; null: it was removed.")


class Rules(AnswerModel):
    items: list[RuleShape]
    changes: list[RuleChangeShape] = Field(description="Of rules made by hand, newest first.")


class RuleRemoved(AnswerModel):
    name: str


class ChannelShape(AnswerModel):
    name: str
    waiting: Number
    set_aside: Number
    failing_since: Time | None
    error: str | None
    delivered_by: str | None = Field(description="The leader that has this channel; null: none had it.")
    rules: list[RuleShape]


class NotificationsModel(AnswerModel):
    items: list[NoticeShape]
    next: str | None
    channels: list[ChannelShape]


class Retried(AnswerModel):
    channel: str | None
    retried: Number
