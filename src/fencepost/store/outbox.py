"""What crosses the store's boundary for notifications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from fencepost.model import Json
from fencepost.model.notices import Notice
from fencepost.model.watching import NotificationRule


@dataclass(frozen=True, slots=True)
class Waiting:
    """A notice in the outbox."""

    channel: str
    rule: str
    notice: Notice
    attempts: int = 0
    error: str | None = None
    """Why the last attempt failed."""
    set_aside_at: datetime | None = None
    key: str = ""
    """Where it stands. Filled in when it is read."""


@dataclass(frozen=True, slots=True)
class OutboxQuery:
    channel: str = ""
    """Only of this one."""
    aside: bool = False
    """Those that were set aside, in place of those that wait."""
    after: str = ""
    limit: int = 100
    changes: bool = False
    """Also who has changed rules by hand."""


@dataclass(frozen=True, slots=True)
class Outbox:
    notices: tuple[Waiting, ...] = ()
    """A page of them, oldest first within a channel."""
    rules: tuple[NotificationRule, ...] = ()
    report: Mapping[str, Json] = field(default_factory=dict)
    """How the channels fare, by the leader that used them last."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """By channel: how many wait."""
    aside: Mapping[str, int] = field(default_factory=dict)
    changes: tuple[RuleChange, ...] = ()
    """Of rules made by hand, newest first; if they were asked for."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A rule was made, changed or removed by hand."""

    name: str
    at: datetime
    by: str
    rule: NotificationRule | None
    """As it was from then on; None: it was removed."""


@dataclass(frozen=True, slots=True)
class NoticeChange:
    key: str
    kind: Literal["delivered", "failed", "aside", "retry", "drop"]
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """Jobs of which the leader has looked for what did not happen."""

    now: datetime
    after: str
    """The last of them; empty: there are no more."""
    next_in: Mapping[str, float]
    """By job: seconds until it must be looked at again. Others need not."""
