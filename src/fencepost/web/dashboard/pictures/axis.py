"""Where time is written along a picture: at round times of a zone's clock, also on days that have 23 or 25 hours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from markupsafe import Markup

from fencepost.web.dashboard.pictures.svg import element, joined, percent

STEPS = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200)
)
DAYS = (1, 2, 5, 7, 14, 30)
DAY = timedelta(days=1)


def share(moment: datetime, since: datetime, until: datetime) -> float:
    return (moment - since) / (until - since)


def ticks(since: datetime, until: datetime, tz: tzinfo, most: int = 8) -> list[tuple[datetime, str]]:
    """At most so many, with their labels."""
    span = until - since
    step = next((step for step in STEPS if span / step <= most), None)
    if step is not None:
        form = "%H:%M:%S" if step < timedelta(minutes=1) else "%H:%M"
        return [(moment, _labelled(moment, tz, form)) for moment in _round_times(since, until, step, tz)]
    days = next((days for days in DAYS if span / (days * DAY) <= most), DAYS[-1])
    return [(moment, f"{moment.astimezone(tz):%d %b}") for moment in _midnights(since, until, days, tz)]


def _round_times(since: datetime, until: datetime, step: timedelta, tz: tzinfo) -> Iterator[datetime]:
    """Walked in UTC, where no hour is missing; kept if the clock of the zone shows a round time."""
    grid = min(step, timedelta(minutes=30)) if step >= timedelta(minutes=30) else step
    moment = datetime.fromtimestamp(-(-since.timestamp() // grid.total_seconds()) * grid.total_seconds(), UTC)
    while moment < until:
        local = moment.astimezone(tz)
        passed = timedelta(hours=local.hour, minutes=local.minute, seconds=local.second)
        if not passed % step:
            yield moment
        moment += grid


def _midnights(since: datetime, until: datetime, days: int, tz: tzinfo) -> Iterator[datetime]:
    day = since.astimezone(tz).date()
    while True:
        day += timedelta(days=1)
        moment = datetime(day.year, day.month, day.day, tzinfo=tz).astimezone(UTC)
        if moment >= until:
            return
        if day.toordinal() % days == 0:
            yield moment


def _labelled(moment: datetime, tz: tzinfo, form: str) -> str:
    local = moment.astimezone(tz)
    return f"{local:%d %b}" if local.hour == local.minute == local.second == 0 else f"{local:{form}}"


def axis(since: datetime, until: datetime, now: datetime, tz: tzinfo, height: int = 16) -> Markup:
    """Labels alone; the lanes below draw the lines."""
    parts = []
    at_now = share(now, since, until)
    for moment, label in ticks(since, until, tz):
        place = share(moment, since, until)
        if abs(place - at_now) > 0.05:
            parts.append(element("text", label, x=percent(place), y=height - 4, text_anchor=_anchor(place)))
    if 0 <= at_now <= 1:
        parts.append(
            element(
                "text", "now", x=percent(at_now), y=height - 4, text_anchor=_anchor(at_now), class_="now-text"
            )
        )
    return joined(parts)


def _anchor(place: float) -> str:
    return "start" if place < 0.03 else "end" if place > 0.97 else "middle"


@lru_cache(maxsize=64)
def grid(since: datetime, until: datetime, tz: tzinfo, height: float) -> Markup:
    return joined(
        element("line", x1=place, x2=place, y1=0, y2=height, class_="grid")
        for place in (percent(share(moment, since, until)) for moment, _ in ticks(since, until, tz))
    )


def now_line(since: datetime, until: datetime, now: datetime, height: float) -> Markup:
    if not since <= now <= until:
        return Markup("")
    place = percent(share(now, since, until))
    return element("line", x1=place, x2=place, y1=0, y2=height, class_="now")
