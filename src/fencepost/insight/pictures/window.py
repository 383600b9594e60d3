"""A stretch of time, cut into buckets of equal width: however many fires there are, a picture has so many columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fencepost.errors import UsageError
from fencepost.model.triggers import EARLIEST, LATEST

SHORTEST = timedelta(minutes=10)
LONGEST = timedelta(days=30)
AHEAD = 0.2
"""The part of a window that follows the clock which lies ahead of now."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
WIDTHS = (timedelta(milliseconds=500), *(timedelta(seconds=each) for each in _SECONDS))
"""What a bucket may be wide: few widths, so that what was read for one picture is of use for the next."""


@dataclass(frozen=True, slots=True)
class Window:
    since: datetime
    until: datetime
    """Both on the grid of the buckets."""
    width: timedelta
    """Of a bucket."""
    now: datetime
    """The store's time of the reading. May lie outside."""

    @property
    def span(self) -> timedelta:
        return self.until - self.since

    @property
    def past_until(self) -> datetime:
        """Where the past ends in it: after now comes what is planned."""
        return max(self.since, min(self.until, self.now + datetime.resolution))

    def buckets(self) -> Iterator[datetime]:
        at = self.since
        while at < self.until:
            yield at
            at += self.width


def floor(moment: datetime, width: timedelta) -> datetime:
    """Where the bucket begins that has this moment."""
    return moment - (moment - EPOCH) % width


def window_of(
    now: datetime, span: timedelta, until: datetime | None = None, columns: int = 240, *, ahead: bool = True
) -> Window:
    """`until` None: it follows the clock, with a fifth of it ahead of now unless `ahead` is False."""
    if not SHORTEST <= span <= LONGEST:
        raise UsageError(f"a window of {span} does not work; give one from 10m to 30d")
    width = next((width for width in WIDTHS if span / width <= columns), WIDTHS[-1])
    end = until if until is not None else now + (span * AHEAD if ahead else timedelta())
    end = min(max(end, EARLIEST + LONGEST * 2), LATEST - LONGEST)
    edge = floor(end - datetime.resolution, width) + width
    return Window(floor(edge - span, width), edge, width, now)
