"""`spread="10m"`: jobs that would all fire at 03:00 fire within ten minutes of it, each at a time of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model.triggers.base import LeftOut, Trigger
from fencepost.model.triggers.times import EARLIEST, ONE_DAY, ONE_SECOND, as_utc, check_keys, in_words
from fencepost.settings import duration

LONGEST_SPREAD = timedelta(days=1)


def spread(of: Trigger, within: timedelta | str | float, job_id: str) -> Staggered:
    within = _checked(duration(within))
    digest = hashlib.sha256(f"{job_id}/spread".encode()).digest()
    seconds = int.from_bytes(digest[:8]) % (within // ONE_SECOND)
    return Staggered(of, within, timedelta(seconds=seconds))


@dataclass(frozen=True, slots=True)
class Staggered(Trigger):
    """Made by `spread=`. The offset is stored: it stays what it was, also if it should be derived otherwise one day."""

    of: Trigger
    within: timedelta
    offset: timedelta

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return (self.of,)

    @property
    def local_zone(self) -> str | None:
        return self.of.local_zone

    def count_after(self, moment: datetime, until: datetime) -> int:
        return self.of.count_after(self._nominal(moment), self._nominal(until))

    def left_out(self, moment: datetime, until: datetime) -> Iterator[LeftOut]:
        for found in self.of.left_out(self._nominal(moment), self._nominal(until)):
            moved = None if found.moved_to is None else found.moved_to + self.offset
            yield LeftOut(found.at + self.offset, found.why, moved)

    def resolved(self, anchor: datetime) -> Staggered:
        return replace(self, of=self.of.resolved(anchor))

    def bound(self, job_id: str) -> Staggered:
        return replace(self, of=self.of.bound(job_id))

    def listed_until(self, moment: datetime) -> tuple[datetime, ...]:
        return tuple(fire + self.offset for fire in self.of.listed_until(self._nominal(moment)))

    def describe(self) -> str:
        offset = in_words(self.offset, one=True) if self.offset else "0 seconds"
        return f"{self.of.describe()}, {offset} later (spread over {in_words(self.within, one=True)})"

    def to_json(self) -> dict[str, Any]:
        within, offset = self.within // ONE_SECOND, self.offset // ONE_SECOND
        return {"type": "spread", "of": self.of.to_json(), "within": within, "offset": offset}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        return (fire + self.offset for fire in self.of.after(self._nominal(moment)))

    def _nominal(self, moment: datetime) -> datetime:
        # No fire is before EARLIEST; further back the arithmetic could overflow.
        return max(as_utc(moment, "moment"), EARLIEST - ONE_DAY) - self.offset


def spread_from_json(value: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Trigger]) -> Staggered:
    check_keys(value, ["of", "within", "offset"], [])
    for name in ("within", "offset"):
        if type(value[name]) is not int or not 0 <= value[name] <= LONGEST_SPREAD // ONE_SECOND:
            raise ConfigurationError(f"{name} {value[name]!r} is not a number of seconds up to a day.")
    within, offset = _checked(timedelta(seconds=value["within"])), timedelta(seconds=value["offset"])
    if offset >= within:
        raise ConfigurationError(f"offset {offset} is not below the spread of {within}; lower it.")
    return Staggered(read(value["of"]), within, offset)


def _checked(within: timedelta) -> timedelta:
    if not ONE_SECOND <= within <= LONGEST_SPREAD:
        raise ConfigurationError(
            f'a spread of {within} does not work; give "1s" to "24h", e.g. spread="10m".'
        )
    return within
