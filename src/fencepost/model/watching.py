"""Rules of notifications: which causes of which jobs a channel is told of. Data, kept in the store by channel name."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from fencepost.errors import ConfigurationError
from fencepost.model.notices import Causes
from fencepost.model.values import checked_id

BEGINS = ("failed", "lost", "missed")
"""Causes that begin an episode when a fire ends."""
ABSENT = ("late", "no_success")
"""What did not happen: the leader finds it."""
PLAIN = (*BEGINS, "recovered", "started", "succeeded")
WITH_NUMBER = (*ABSENT, "failed_in_a_row")
_SPEC = re.compile(r"([a-z_]+)(?::(\d{1,9}))?")
_QUIET = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)(?: ([A-Za-z_+/0-9-]{1,60}))?")
MOST_RULES = 200
LONGEST_CHOICE = 300


def checked_causes(on: Causes | Iterable[Any]) -> tuple[str, ...]:
    """As they are stored, in order: `failed`, `late:300` (seconds), `failed_in_a_row:3`."""
    specs = sorted({on} if isinstance(on, str) else set(on))
    if not specs:
        raise ConfigurationError("on= names no cause; give one such as failed | missed")
    for spec in specs:
        found = _SPEC.fullmatch(spec) if isinstance(spec, str) else None
        name, number = (found[1], found[2]) if found else (None, None)
        if not (name in PLAIN and number is None) and not (name in WITH_NUMBER and int(number or 0) >= 1):
            raise ConfigurationError(
                f"the cause {spec!r} is not known; use {', '.join(PLAIN)}, late, no_success_for or failed_in_a_row"
            )
    return tuple(specs)


@dataclass(frozen=True)
class Watch:
    """What one rule asks of one job."""

    rule: str
    channel: str
    on: tuple[str, ...]

    @property
    def each_run(self) -> bool:
        """Each run is told, not the first failure and the recovery."""
        return "started" in self.on or "succeeded" in self.on

    @property
    def absences(self) -> list[tuple[str, timedelta]]:
        parted = (spec.partition(":") for spec in self.on)
        return [(name, timedelta(seconds=int(number))) for name, _, number in parted if name in ABSENT]

    @property
    def in_a_row(self) -> int | None:
        parted = (spec.partition(":") for spec in self.on)
        return next((int(number) for name, _, number in parted if name == "failed_in_a_row"), None)


@dataclass(frozen=True)
class Episode:
    """A cause that goes on: one notice when it begins, one when the job has recovered."""

    rule: str
    cause: str
    began: str
    """The fire it began with; without one the moment."""
    at: datetime
    silent: bool = False
    """Its begin was not told: the rule asks for recoveries only."""


@dataclass(frozen=True)
class NotificationRule:
    channel: str
    on: tuple[str, ...]
    jobs: str = ""
    """An id, a pattern of ids (`report-*`), or `tag:nightly` (`selection.py`); empty: every job."""
    quiet: str = ""
    """`22:00-07:00 Europe/Zurich`: what arises then is delivered afterwards."""
    digest: float = 0.0
    """Seconds to gather notices for one message."""
    name: str = ""
    """Of a rule that was made by hand, over the API or by a command. Empty: code declares it."""
    by: str = ""
    """Who made it by hand."""

    def __post_init__(self) -> None:
        checked_id(self.channel, "channel")
        if self.name:
            checked_id(self.name, "rule")
        object.__setattr__(self, "on", checked_causes(self.on))
        if len(self.jobs) > LONGEST_CHOICE:
            raise ConfigurationError(f"jobs= has more than {LONGEST_CHOICE} characters")
        if not 0 <= self.digest <= 7 * 86400:
            raise ConfigurationError("digest must be at most 7 days")
        if self.quiet:
            _hours(self.quiet)

    @property
    def source(self) -> str:
        return "api" if self.name else "code"

    @cached_property
    def id(self) -> str:
        """The same for the same channel, jobs and causes: an episode outlives a restart, and what two rules ask for
        alike is told once."""
        text = "\0".join((self.channel, self.jobs, *self.on))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @cached_property
    def watch(self) -> Watch:
        return Watch(self.id, self.channel, self.on)

    def quiet_until(self, now: datetime) -> datetime | None:
        """When the quiet hours that `now` is in are over."""
        if not self.quiet:
            return None
        begin, end, zone = _hours(self.quiet)
        local = now.astimezone(zone)
        for days in (-1, 0):
            first = datetime.combine(local.date() + timedelta(days=days), begin, zone)
            last = datetime.combine(first.date() + timedelta(days=int(end <= begin)), end, zone)
            if first <= local < last:
                return last
        return None


def _hours(text: str) -> tuple[time, time, ZoneInfo]:
    found = _QUIET.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        first, last = time(int(found[1]), int(found[2])), time(int(found[3]), int(found[4]))
        return first, last, ZoneInfo(found[5] or "UTC")
    except (ValueError, OSError, LookupError):
        raise ConfigurationError(
            f'quiet={text!r} is not understood; write "22:00-07:00 Europe/Zurich" (without a zone: UTC)'
        ) from None
