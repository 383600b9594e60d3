"""From wall clocks to instants. A "wall" is what a clock on the wall shows, kept as a datetime that is
labelled UTC only for cheap arithmetic. Cron engines step over walls, where there are no gaps and folds;
which instants a wall stands for is decided here. (The engines' own zone handling depends on the instant
of asking: cronsim, started in the second pass of a fold, answers a time already past; it fires at
midnights that a gap skips only when it arrives from another day; and it loses the half hour after Lord
Howe's 30-minute change.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from zoneinfo import ZoneInfo

from fencepost.model.triggers.times import EARLIEST, LATEST, ONE_DAY, ONE_MICROSECOND, ONE_SECOND

ClockRule = Callable[[datetime, datetime, ZoneInfo], tuple[datetime, ...]]
"""Which instants an irregular wall stands for, given it read with the offset before the change and with the
offset after. In a fold the first reading is the earlier one, in a gap it is the later one."""


def fixed_times(before: datetime, after: datetime, tz: ZoneInfo) -> tuple[datetime, ...]:
    """A skipped time fires when the gap ends, a repeated one in the first pass."""
    return (before,) if before < after else (_change_between(after, before, tz),)


def clock_times(before: datetime, after: datetime, tz: ZoneInfo) -> tuple[datetime, ...]:
    """A skipped time does not fire, a repeated one fires in both passes."""
    return (before, after) if before < after else ()


def instant_of(wall: datetime, tz: ZoneInfo) -> datetime:
    """The instant of one fixed time."""
    local = wall.replace(tzinfo=tz)
    before, after = wall - _offset_of(local), wall - _offset_of(local.replace(fold=1))
    return before if before == after else fixed_times(before, after, tz)[0]


def fires_on_the_clock(
    walls_after: Callable[[datetime], Iterable[datetime]],
    tz: ZoneInfo,
    rule: ClockRule,
    moment: datetime,
    start: datetime | None,
    end: datetime | None,
) -> Iterator[datetime]:
    """The instants in (moment, end], not before start, of the walls that `walls_after(wall)` answers.

    They come in order; walls at or before the given one may be among them, and are dropped.
    """
    last = end or LATEST
    moment = max(moment, EARLIEST if start is None else start - ONE_MICROSECOND)
    if moment >= last:
        return iter(())
    walls = walls_after(_wall_safely_before(moment, tz))
    fires = _instants(walls, tz, rule, moment)
    return itertools.takewhile(lambda fire: fire <= last, fires)


def _wall_safely_before(moment: datetime, tz: ZoneInfo) -> datetime:
    """A wall such that no earlier wall fires after `moment`.

    Away from clock changes that is what the clock shows. Within a day of a change the clock may show again
    what it showed before, so step back by the size of the change: the fires then do not depend on the
    moment of asking. No zone has changed by more than 24 hours, nor twice within two days of consequence.
    """
    here = _offset_at(moment, tz)
    nearby = (_offset_at(moment - ONE_DAY, tz), here, _offset_at(moment + ONE_DAY, tz))
    return moment + here - (max(nearby) - min(nearby))


def _instants(
    walls: Iterable[datetime], tz: ZoneInfo, rule: ClockRule, moment: datetime
) -> Iterator[datetime]:
    """Walls to instants after `moment`, put in order and without repetition."""
    latest = moment
    pending: list[datetime] = []
    for wall in walls:
        local = wall.replace(tzinfo=tz)
        before = wall - _offset_of(local)
        after = wall - _offset_of(local.replace(fold=1))
        if before == after and not pending:  # nearly always
            if before > latest:
                latest = before
                yield before
            continue
        for fire in (before,) if before == after else rule(before, after, tz):
            heappush(pending, fire)
        # Later walls fire later than both readings' minimum: up to there the order is settled.
        while pending and pending[0] <= min(before, after):
            if (fire := heappop(pending)) > latest:
                latest = fire
                yield fire
    while pending:
        if (fire := heappop(pending)) > latest:
            latest = fire
            yield fire


def _change_between(low: datetime, high: datetime, tz: ZoneInfo) -> datetime:
    """The instant in (low, high] at which the zone's offset changes, to the second."""
    old = _offset_at(low, tz)
    while high - low > ONE_SECOND:
        middle = low + (high - low) // (2 * ONE_SECOND) * ONE_SECOND
        if _offset_at(middle, tz) == old:
            low = middle
        else:
            high = middle
    return high


def _offset_at(instant: datetime, tz: ZoneInfo) -> timedelta:
    return _offset_of(instant.astimezone(tz))


def _offset_of(local: datetime) -> timedelta:
    offset = local.utcoffset()
    assert offset is not None
    return offset
