"""Calendars: days and windows in which jobs do not fire.

A calendar is a value with all its dates in it. Where they come from (a library, a file) is asked once, when the
calendar is made; what is stored with a job needs none of that, so every host computes the same fires.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from fencepost.errors import ConfigurationError
from fencepost.model.triggers.closures import (
    WEEKDAYS,
    Blackout,
    Closures,
    Dates,
    checked_days,
    checked_name,
    disjoint,
    several,
    weekend_days,
    years_of,
)
from fencepost.model.triggers.times import check_keys, from_iso, iso, zone_name
from fencepost.settings import did_you_mean


@dataclass(frozen=True, init=False)
class Calendar:
    """Closed days and blackouts under a name: `Calendar("zurich", holidays="CH-ZH", weekend="sat,sun")`.

    - `holidays`: codes of the `holidays` library, as "CH", "CH-ZH" or "XNYS" (needs `fencepost[calendars]`).
    - `ics`: iCalendar files. Whole-day events close days, others are blackouts.
    - `dates`: your own, with names: `{"2026-12-24": "Christmas Eve", "12-31": "New Year's Eve"}`; also
      "2026-12-24/2027-01-02".
    - `weekend`: the days of the week that are closed: "sat,sun". None, if left out.
    - `blackouts`: windows `(start, end, why)` of aware datetimes; the end is not part of it.
    - `tz`: where its days begin and end. If left out, where the trigger's do.
    - `years`: for which it is made, as `(2025, 2039)`. If left out: at least ten ahead, and the same for every start of
      the program within five years.
    - `language`: of the names of holidays, as "de". English, if left out and known.
    """

    name: str
    days: tuple[tuple[date, str], ...]
    weekend: tuple[int, ...]
    blackouts: tuple[Blackout, ...]
    tz: str | None
    years: tuple[int, int] | None
    """Which its sources were asked for; None: it has none. It knows nothing of holidays in other years."""

    def __init__(
        self,
        name: str,
        *,
        holidays: str | Iterable[str] = (),
        ics: str | Path | Iterable[str | Path] = (),
        dates: Dates = (),
        weekend: str | Iterable[str] = (),
        blackouts: Iterable[Any] = (),
        tz: str | ZoneInfo | None = None,
        years: tuple[int, int] | None = None,
        language: str | None = None,
    ) -> None:
        tz = None if tz is None else zone_name(tz)
        span, sources = years_of(years), Closures()
        for code in several(holidays):
            sources.add_holidays(code, span, language)
        for path in several(ics):
            sources.add_file(Path(path), span, tz)
        yearly = sources.add_dates(dates, span)
        sources.add_blackouts(blackouts)
        asked = bool(several(holidays) or several(ics) or yearly or years)
        values: dict[str, Any] = {
            "name": checked_name(name),
            "days": checked_days(sources.days),
            "weekend": weekend_days(weekend),
            "blackouts": disjoint(sources.windows),
            "tz": tz,
            "years": (span[0], span[-1]) if asked else None,
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @classmethod
    def load(cls, name: str, directory: str | Path = ".") -> Calendar:
        """The one that `[calendars.NAME]` of `fencepost.toml`, or of `[tool.fencepost]`, describes."""
        from fencepost.model.calendars.tables import calendar_table

        path, table = calendar_table(name, Path(directory))
        for key in table:
            if key not in TABLE_KEYS:
                raise ConfigurationError(
                    f"{path}: [calendars.{name}]: there is no {key!r}{did_you_mean(key, TABLE_KEYS)}"
                )
        if "ics" in table:
            table["ics"] = [path.parent / file for file in several(table["ics"])]
        if isinstance(table.get("years"), list):
            table["years"] = tuple(table["years"])
        try:
            return cls(name, **table)
        except (ConfigurationError, TypeError) as problem:
            raise ConfigurationError(f"{path}: [calendars.{name}]: {problem}") from None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # it has many parts, and is asked for often
        return hash((self.name, self.days, self.weekend, self.blackouts, self.tz))

    @cached_property
    def _names(self) -> dict[date, str]:
        return dict(self.days)

    @cached_property
    def _starts(self) -> list[datetime]:
        return [blackout.start for blackout in self.blackouts]

    def closed_day(self, day: date) -> str | None:
        """Why this day is closed; None: it is open."""
        if (name := self._names.get(day)) is not None:
            return name
        return WEEKDAYS[day.weekday()].capitalize() if day.weekday() in self.weekend else None

    def blackout_at(self, moment: datetime) -> Blackout | None:
        number = bisect_right(self._starts, moment) - 1
        return self.blackouts[number] if number >= 0 and moment < self.blackouts[number].end else None

    def blackout_within(self, start: datetime, end: datetime) -> bool:
        number = bisect_right(self._starts, end) - 1
        return number >= 0 and start < self.blackouts[number].end

    def next_blackout(self, moment: datetime) -> datetime | None:
        """When the next one after this moment begins."""
        number = bisect_right(self._starts, moment)
        return self._starts[number] if number < len(self._starts) else None

    def to_json(self) -> dict[str, Any]:
        """Dates by name, in one text each: a hundred of them are read at every look into the store."""
        by_name: dict[str, list[str]] = {}
        for day, name in self.days:
            by_name.setdefault(name, []).append(day.isoformat())
        blackouts = [
            {"from": iso(each.start), "until": iso(each.end), "why": each.why} for each in self.blackouts
        ]
        parts = {
            "days": {name: " ".join(days) for name, days in by_name.items()},
            "weekend": " ".join(WEEKDAYS[day][:3] for day in self.weekend),
            "blackouts": blackouts,
            "tz": self.tz,
            "years": None if self.years is None else list(self.years),
        }
        return {"name": self.name, **{name: part for name, part in parts.items() if part}}


TABLE_KEYS = ("holidays", "ics", "dates", "weekend", "blackouts", "tz", "years", "language")


def calendar_from_json(value: Any) -> Calendar:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"calendar {value!r} is not an object with a name and days.")
    check_keys(value, ["name"], ["days", "weekend", "blackouts", "tz", "years"])
    days, blackouts = value.get("days", {}), value.get("blackouts", [])
    if not isinstance(days, Mapping) or not all(isinstance(text, str) for text in days.values()):
        raise ConfigurationError(f"days {str(days)[:100]} are not texts of dates by name.")
    if not isinstance(blackouts, list) or not all(isinstance(each, Mapping) for each in blackouts):
        raise ConfigurationError(f"blackouts {str(blackouts)[:100]} are not a list of objects.")
    years = value.get("years")
    if years is not None and (not isinstance(years, list) or not all(type(year) is int for year in years)):
        raise ConfigurationError(f"years {years!r} are not two numbers.")
    if not all(isinstance(value.get(key, ""), str) for key in ("name", "weekend", "tz")):
        raise ConfigurationError("name, weekend and tz of a calendar are texts.")
    windows = tuple((each.get("from"), each.get("until"), each.get("why")) for each in blackouts)
    if not all(isinstance(text, str) for window in windows for text in window):
        raise ConfigurationError(f"blackouts {str(blackouts)[:100]} lack from, until or why.")
    return _read(
        value["name"],
        tuple(days.items()),
        value.get("weekend", ""),
        windows,
        value.get("tz"),
        None if years is None else tuple(years),
    )


@lru_cache(maxsize=256)
def _read(
    name: str,
    days: tuple[tuple[str, str], ...],
    weekend: str,
    windows: tuple[tuple[str, str, str], ...],
    tz: str | None,
    years: tuple[int, int] | None,
) -> Calendar:
    return Calendar(
        name,
        dates={day: why for why, text in days for day in text.split()},
        weekend=weekend.split(),
        blackouts=[(from_iso(start), from_iso(end), why) for start, end, why in windows],
        tz=tz,
        years=years,
    )
