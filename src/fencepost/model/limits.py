"""Limits across jobs: how many runs of all jobs that carry one may go on at once, or start in a while."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from fencepost.errors import ConfigurationError
from fencepost.model.values import Json, checked_id

MOST_LIMITS = 10
"""Of one job."""
LARGEST = 1_000
"""Runs at once, or starts in a while: the starts are kept, each with its moment."""
ROW = "fencepost.limit:"
"""With what the ids of rows begin that limits have among the jobs; see decision 0062."""
_PERIODS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RATE = re.compile(r"\s*(\d{1,6})\s*/\s*(\d{0,4})\s*([smhd])\s*")

Full = Literal["queue", "skip"]


@dataclass(frozen=True, slots=True)
class Limit:
    """Made by `limit(…)`."""

    name: str
    size: int
    per_seconds: int | None = None
    """None: so many runs at once. Otherwise so many starts in any stretch of this length."""
    full: Full = "queue"
    """What becomes of a scheduled fire that finds it full: it waits, or is skipped."""

    def __post_init__(self) -> None:
        checked_id(self.name, "limit")
        if len(self.name) > 100:
            raise ConfigurationError(f"limit {self.name!r}: the name has more than 100 characters")
        if type(self.size) is not int or not 1 <= self.size <= LARGEST:
            raise ConfigurationError(
                f"limit {self.name}: the size must be between 1 and {LARGEST:,}, not {self.size!r}; a rate can name a "
                'shorter time, as "10/s" for "36000/h"'
            )
        if self.full not in ("queue", "skip"):
            raise ConfigurationError(
                f'limit {self.name}: full={self.full!r} is not known; use "queue" or "skip"'
            )

    @property
    def row_id(self) -> str:
        return ROW + self.name

    def __str__(self) -> str:
        return f"{self.name}: {amount(self.size, self.per_seconds)}"


def limit(name: str, size: int | str, *, full: Full = "queue") -> Limit:
    """`limit("warehouse", 2)`: at most two runs at once, of all jobs that carry it. `limit("mail", "100/m")`: at most a
    hundred starts in any minute; also `10/s`, `5/10m`, `1000/h`, `1000/d`. `limit(name, 1)` keeps jobs apart."""
    if not isinstance(size, str):
        return Limit(name, size, None, full)
    found = _RATE.fullmatch(size)
    if not found or int(found[2] or 1) < 1:
        raise ConfigurationError(f'limit {name}: {size!r} is not a rate; write "100/m", "10/s" or "5/10m"')
    return Limit(name, int(found[1]), int(found[2] or 1) * _PERIODS[found[3]], full)


def amount(size: int, per_seconds: int | None) -> str:
    """`2`, or `100/m`."""
    if per_seconds is None:
        return str(size)
    unit = next(unit for unit in reversed(_PERIODS) if per_seconds % _PERIODS[unit] == 0)
    count = per_seconds // _PERIODS[unit]
    return f"{size}/{'' if count == 1 else count}{unit}"


def read_limits(given: Any) -> tuple[Limit, ...]:
    """As given in code, or as `{"name": "warehouse", "size": 2}` in a job file, over the API or in the store."""
    some = [given] if isinstance(given, Limit | Mapping) else given or ()
    if not isinstance(some, list | tuple):
        raise ConfigurationError(f'limits={given!r}: give a list, as limits=[limit("warehouse", 2)]')
    limits = tuple(map(_read_limit, some))
    names = [each.name for each in limits]
    if len(set(names)) < len(names) or len(names) > MOST_LIMITS:
        raise ConfigurationError(
            f"limits of one job must have different names; there are at most {MOST_LIMITS}"
        )
    return limits


def _read_limit(given: Any) -> Limit:
    if isinstance(given, Limit):
        return given
    if not isinstance(given, Mapping) or not {"name", "size"} <= set(given) <= {"name", "size", "full"}:
        raise ConfigurationError(
            f'the limit {given!r} is not usable; write limit("warehouse", 2), or {{name = "warehouse", size = 2}}'
        )
    size = given["size"]
    return limit(given["name"], int(size) if str(size).isdecimal() else size, full=given.get("full", "queue"))


def limits_to_json(limits: Sequence[Limit]) -> list[Json]:
    return [
        {"name": each.name, "size": amount(each.size, each.per_seconds), "full": each.full} for each in limits
    ]


# --- a limit as the store keeps it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Member:
    """A job that carries the limit, and the size it declares."""

    job_id: str
    size: int
    per_seconds: int | None = None


@dataclass(frozen=True)
class Waiter:
    """A job with a fire that waits for the limit."""

    due_at: datetime
    """When the oldest such fire was due."""
    job_id: str
    priority: int = 0

    @property
    def turn(self) -> tuple[int, datetime, str]:
        """The order in which they are served."""
        return -self.priority, self.due_at, self.job_id


@dataclass(frozen=True)
class LimitState:
    members: tuple[Member, ...] = ()
    holders: tuple[str, ...] = ()
    """Keys of fires that were claimed under it. One counts as long as its row says that it runs."""
    starts: tuple[datetime, ...] = ()
    """Of a rate: the last starts, one after the other, as many as a stretch may have."""
    waiting: tuple[Waiter, ...] = ()

    @property
    def size(self) -> int | None:
        """Runs at once. Where jobs declare different sizes the smallest holds."""
        return min((each.size for each in self.members if each.per_seconds is None), default=None)

    @property
    def rate(self) -> tuple[int, timedelta] | None:
        """Starts, and in which time; the smallest rate holds."""
        rates = [(each.size, each.per_seconds) for each in self.members if each.per_seconds is not None]
        if not rates:
            return None
        size, per = min(rates, key=lambda rate: (rate[0] / rate[1], rate[0]))
        return size, timedelta(seconds=per)


@dataclass(frozen=True)
class HeldBack:
    """Why a job's fires wait: a limit that is full."""

    limit: str
    until: datetime
    """When it is checked again, should nothing happen before."""
