"""What is planned: fires to come, by bucket, from the triggers in force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from fencepost.insight.pages import INSTANT
from fencepost.insight.pictures.window import Window, floor
from fencepost.insight.views.shapes import calendar
from fencepost.model import JobRecord
from fencepost.model.triggers import Trigger


@dataclass(frozen=True, slots=True)
class Tick:
    """Fires that will be due in one bucket."""

    at: datetime
    """Where its bucket begins."""
    due_at: datetime
    """The first of them."""
    more: bool
    """There are others in the bucket."""
    paused: bool
    """As things stand they will be skipped, because the job is paused then."""


def ticks_of(record: JobRecord, window: Window) -> tuple[Tick, ...]:
    """Soonest first, at most one for each bucket."""
    trigger = calendar(record)
    if trigger is None or trigger.foreign is not None or window.until <= window.now:
        return ()
    start = max(window.now, window.since - INSTANT)
    this = floor(start, window.width) + window.width
    here = trigger.next_after(start)
    found = []
    if here is not None and here < min(this, window.until):
        later = trigger.next_after(here)
        found.append((here, later is not None and later < this))
    found += _dues(trigger, this, window.until, window.width)
    return tuple(
        Tick(floor(due, window.width), due, more, record.paused_at(due) is not None) for due, more in found
    )


def _dues(
    trigger: Trigger, since: datetime, until: datetime, width: timedelta
) -> tuple[tuple[datetime, bool], ...]:
    try:
        return _kept_dues(trigger, since, until, width)
    except TypeError:  # a trigger type of a third party that is not hashable
        return tuple(_firsts(trigger, since, until, width))


@lru_cache(maxsize=2_000)
def _kept_dues(
    trigger: Trigger, since: datetime, until: datetime, width: timedelta
) -> tuple[tuple[datetime, bool], ...]:
    return tuple(_firsts(trigger, since, until, width))


def _firsts(
    trigger: Trigger, since: datetime, until: datetime, width: timedelta
) -> Iterator[tuple[datetime, bool]]:
    """Of each bucket the first fire, and whether it has more. Buckets with many fires are jumped over."""
    fires = trigger.after(since - INSTANT)
    due = next(fires, None)
    while due is not None and due < until:
        end = floor(due, width) + width
        following = next(fires, None)
        more = following is not None and following < end
        yield due, more
        if more:
            fires = trigger.after(end - INSTANT)
            following = next(fires, None)
        due = following
