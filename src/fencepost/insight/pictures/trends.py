"""One job over time: how long its runs took, how late they started, and how each day went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from statistics import median
from typing import TYPE_CHECKING

from fencepost.insight.pictures.overview import Lateness, late_by, lateness_of
from fencepost.insight.pictures.tallies import HOUR, counted
from fencepost.model import FireRecord, State
from fencepost.store.base import FireQuery, Store

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader

POINTS = 200
SLOWER = 2.0
"""A run is slower than usual if it took so many times the median,"""
AT_LEAST = timedelta(seconds=1)
"""and at least so much longer."""
HEAT_DAYS = 90


@dataclass(frozen=True, slots=True)
class Point:
    """One run."""

    key: str
    due_at: datetime
    state: str
    late_seconds: float | None
    took_seconds: float | None
    """Of its last attempt; of one that runs, until now."""
    slow: bool
    """Slower than usual."""


@dataclass(frozen=True, slots=True)
class Trend:
    job_id: str
    now: datetime
    points: tuple[Point, ...]
    """Its last runs, oldest first."""
    more: bool
    """There are older ones."""
    usual_seconds: float | None
    """The median of what its successes took."""
    lateness: Lateness
    histogram: tuple[tuple[float, int], ...]
    """Lateness: up to so many seconds, so many runs. The last limit is infinite."""


LIMITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 60, 300, 3600, float("inf"))


@dataclass(frozen=True, slots=True)
class DayTrend:
    day: date
    states: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HeatMap:
    job_id: str
    days: tuple[DayTrend, ...]
    """90, oldest first; those without fires have no states."""
    counted_since: datetime
    """What was due before that is not counted: there are too many."""


async def trend(reader: Reader, store: Store, job_id: str, points: int = POINTS) -> Trend:
    now = (await reader.cluster()).now
    query = FireQuery(job_id=job_id, until=now + datetime.resolution, limit=points + 1)
    rows = [fire for fire in await store.find_fires(query) if fire.started_at is not None]
    fires = rows[:points][::-1]
    took = [seconds for fire in fires if fire.state is State.SUCCEEDED and (seconds := took_by(fire, now))]
    usual = median(took) if took else None
    return Trend(
        job_id=job_id,
        now=now,
        points=tuple(_point(fire, now, usual) for fire in fires),
        more=len(rows) > points,
        usual_seconds=usual,
        lateness=lateness_of(fires),
        histogram=_histogram(fires),
    )


def _point(fire: FireRecord, now: datetime, usual: float | None) -> Point:
    took = took_by(fire, now)
    slow = (
        took is not None
        and usual is not None
        and took > max(usual * SLOWER, usual + AT_LEAST.total_seconds())
    )
    return Point(fire.key, fire.due_at, fire.state.value, late_by(fire), took, slow)


def took_by(fire: FireRecord, now: datetime) -> float | None:
    if fire.started_at is None or fire.state in (State.WAITING, State.QUEUED, State.PENDING):
        return None
    return max(0.0, ((fire.finished_at or now) - fire.started_at).total_seconds())


def _histogram(fires: Sequence[FireRecord]) -> tuple[tuple[float, int], ...]:
    late = [seconds for fire in fires if (seconds := late_by(fire)) is not None]
    edges = zip((-1.0, *LIMITS), LIMITS, strict=False)
    return tuple((limit, sum(lower < each <= limit for each in late)) for lower, limit in edges)


async def heat_map(reader: Reader, store: Store, job_id: str, tz: tzinfo = UTC) -> HeatMap:
    """By the days of this zone."""
    now = (await reader.cluster()).now
    today = now.astimezone(tz).date()
    first = today - timedelta(days=HEAT_DAYS - 1)
    since = datetime(first.year, first.month, first.day, tzinfo=tz).astimezone(UTC)
    found = await counted(reader, store, since, now + datetime.resolution, HOUR, job_id)
    days: dict[date, dict[str, int]] = {first + timedelta(days=n): {} for n in range(HEAT_DAYS)}
    for at, states in found.by_bucket.items():
        day = days.setdefault(at.astimezone(tz).date(), {})
        for state, number in states.items():
            day[state] = day.get(state, 0) + number
    items = tuple(DayTrend(day, states) for day, states in sorted(days.items())[-HEAT_DAYS:])
    return HeatMap(job_id, items, max(since, found.since))
