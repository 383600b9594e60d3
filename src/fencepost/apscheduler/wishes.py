"""What the scheduler's threads want done in the store. The mirror carries it there, in order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fencepost.apscheduler.roll import Guarded

KEPT_KNOWN = 3600.0
"""Seconds for which a job that is over stays known here: its last fire may be claimed late."""


@dataclass(frozen=True)
class Define:
    guarded: Guarded
    first_at: datetime | None = None
    """If the definition is new, one run at this time beside those of the calendar."""
    paused: bool = False
    """If the definition is new it begins with a pause."""
    added_at: datetime | None = None
    """When the application added or changed it, by this process's clock. None: it was found in a job store."""
    chosen: bool = False
    """The application has added or changed it while it ran, and not as it started: that holds for all processes."""


@dataclass(frozen=True)
class Pause:
    name: str


@dataclass(frozen=True)
class Resume:
    name: str


@dataclass(frozen=True)
class Remove:
    name: str


@dataclass(frozen=True)
class Conclude:
    """A job that runs once has run, or will not: it is removed, unless it has been given another date meanwhile."""

    guarded: Guarded
    moment: datetime


@dataclass(frozen=True)
class RunAt:
    """One run beside those of the calendar; and none of those before."""

    guarded: Guarded
    at: datetime
    expected: bool = False
    """The time has come, and the job is still put off until then."""


@dataclass(frozen=True)
class Forget:
    """Not known to this replica any more, unless it has been defined anew; others may go on with it."""

    guarded: Guarded
    after: float = 0.0


Wish = Define | Pause | Resume | Remove | Conclude | RunAt | Forget
