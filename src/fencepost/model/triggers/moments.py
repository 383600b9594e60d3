"""`at`: given moments."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model.triggers.base import Trigger
from fencepost.model.triggers.times import as_utc, check_keys, declared, from_iso, iso, readable

MOST_MOMENTS = 10_000


def at(*moments: datetime) -> At:
    """One or more given moments: `at(datetime(2026, 11, 15, 12, tzinfo=ZoneInfo("Europe/Zurich")))`."""
    if not moments:
        raise ConfigurationError("at() has no moments; give at least one datetime, e.g. at(moment).")
    if len(moments) > MOST_MOMENTS:
        raise ConfigurationError(
            f"at() was given {len(moments)} moments, more than {MOST_MOMENTS}; use every() or cron(), "
            "or split them over several jobs."
        )
    return At(tuple(sorted({declared(moment, "moment") for moment in moments})))


@dataclass(frozen=True, slots=True)
class At(Trigger):
    """Made by `at`."""

    moments: tuple[datetime, ...]

    def count_after(self, moment: datetime, until: datetime) -> int:
        first = bisect_right(self.moments, as_utc(moment, "moment"))
        return max(0, bisect_right(self.moments, as_utc(until, "until")) - first)

    def listed_until(self, moment: datetime) -> tuple[datetime, ...]:
        return self.moments[: bisect_right(self.moments, as_utc(moment, "moment"))]

    def describe(self) -> str:
        first, *others = (readable(moment) for moment in self.moments)
        if len(others) < 3:
            return "at " + ", ".join([first, *others])
        return f"at {first} and {len(others)} more until {others[-1]}"

    def to_json(self) -> dict[str, Any]:
        return {"type": "at", "moments": [iso(moment) for moment in self.moments]}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        return itertools.islice(self.moments, bisect_right(self.moments, moment), None)


def at_from_json(value: Mapping[str, Any]) -> At:
    check_keys(value, ["moments"], [])
    moments = value["moments"]
    if not isinstance(moments, list):
        raise ConfigurationError(f"moments {moments!r} is not a list; give a list of ISO 8601 times.")
    return at(*map(from_iso, moments))
