"""Times, durations and errors in words, for people."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo

from fencepost.model import error_line

shown_in: ContextVar[tzinfo | None] = ContextVar("shown_in", default=UTC)
"""The zone in which times are shown. None: the zone of this machine."""


def when(moment: datetime | None, *, exact: bool = False) -> str:
    """To the second, or `exact`ly to the millisecond, in the zone of `shown_in`."""
    if moment is None:
        return ""
    text = moment.astimezone(shown_in.get()).isoformat(" ", "milliseconds" if exact else "seconds")
    return f"{text.removesuffix('+00:00')}Z" if shown_in.get() is UTC else text


def distance(moment: datetime | None, now: datetime) -> str:
    """`in 5 min`, `2 h ago`."""
    if moment is None:
        return ""
    return f"in {length(moment - now)}" if moment > now else f"{length(now - moment)} ago"


def roughly(moment: datetime | None, now: datetime) -> str:
    """`in 5 min`, `2 h ago`: the largest unit alone."""
    if moment is None:
        return ""
    seconds = abs((moment - now).total_seconds())
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    text = f"{int(seconds // size)} {unit}"
    return f"in {text}" if moment > now else f"{text} ago"


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def length(time: timedelta) -> str:
    """The two largest units: `120 ms`, `1.5 s`, `5 min 3 s`, `2 h 10 min`, `3 d 4 h`."""
    seconds = time.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = int(seconds)
    for larger, smaller, unit, rest in (
        (86_400, 3_600, "d", "h"),
        (3_600, 60, "h", "min"),
        (60, 1, "min", "s"),
    ):
        if whole >= larger:
            more = whole % larger // smaller
            return f"{whole // larger} {unit}" + (f" {more} {rest}" if more else "")
    raise AssertionError("unreachable")


def last_line(error: str | None) -> str:
    """Of a traceback: the exception."""
    return error_line(error) or ""
