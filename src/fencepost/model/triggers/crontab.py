"""`cron`: wall-clock times in a zone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from fencepost.errors import ConfigurationError
from fencepost.model.triggers.base import Trigger
from fencepost.model.triggers.hashed import has_hashes, with_numbers
from fencepost.model.triggers.times import (
    bounds,
    check_keys,
    describe_bounds,
    did_you_mean,
    moment_from_json,
    moments_to_json,
    zone,
    zone_name,
)
from fencepost.model.triggers.walls import clock_times, fires_on_the_clock, fixed_times

if TYPE_CHECKING:
    from fencepost.model.triggers.calendar import Calendar

WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""They are stored as what they stand for."""


def cron(
    expression: str,
    tz: str | ZoneInfo = "UTC",
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    calendar: Calendar | None = None,
    closed: str = "exclude",
) -> Trigger:
    """Wall-clock times in a zone: `cron("30 2 * * *", tz="Europe/Zurich")`.

    Five fields (minute, hour, day of month, month, day of week), or six with seconds first; names, ranges,
    lists, steps, `L` and `LW` as days of the month, `5L` and `MON#1` as days of the week. Sunday is 0 or 7.
    When both day fields are restricted a day need match only one of them; a day field that begins with a
    star must match in any case. `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are words for common ones.
    `H` is a number derived from the job's id: `H H * * *` is once a day, at a time of the job's own.

    With a `calendar` it fires on open days only. `closed`: the fires of other days are left out (`exclude`), or move to
    the same time of the next open day (`shift`).

    When the zone's clock changes:

    - An expression whose second, minute and hour fields do not begin with a star means fixed times of day.
      A time that the clock skips (a gap) fires once, at the instant the gap ends; several skipped times
      fire once together. A time that the clock repeats (a fold) fires once, in the first pass.
    - With a star at the beginning of one of those fields the expression follows the clock: it fires at every
      real instant whose wall-clock time matches. So a skipped time does not fire, and a repeated one
      fires in both passes; `*/30 * * * *` and `0 * * * *` keep their distance in elapsed time across a
      change of an hour. (`*/5 2 * * *` does not fire on the day that has no hour 2, and
      `0 */2 * * *` counts hours of the clock, not elapsed ones.)
    """
    expression = _cron_expression(expression)
    start, end = bounds(start, end)
    trigger = Cron(expression, zone_name(tz), start, end)
    return trigger if calendar is None else trigger.on(calendar, closed)


@dataclass(frozen=True, slots=True)
class Cron(Trigger):
    """Made by `cron`."""

    expression: str
    tz: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None

    @property
    def is_bound(self) -> bool:
        return not has_hashes(self.expression)

    def bound(self, job_id: str) -> Cron:
        return self if self.is_bound else replace(self, expression=with_numbers(self.expression, job_id))

    def describe(self) -> str:
        return f"cron {self.expression} in {self.tz}{describe_bounds(self.start, self.end)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "cron",
            "expression": self.expression,
            "tz": self.tz,
            **moments_to_json(start=self.start, end=self.end),
        }

    def _after(self, moment: datetime) -> Iterator[datetime]:
        if not self.is_bound:
            raise ConfigurationError(
                f"{self.expression!r} has no times yet: H is derived from the job's id when the job is declared; "
                "call bound(job_id) to use the trigger by itself."
            )
        times_of_day = self.expression.split()[:-3]
        follows_the_clock = any(field.startswith("*") for field in times_of_day)
        rule = clock_times if follows_the_clock else fixed_times
        return fires_on_the_clock(self._walls_after, zone(self.tz), rule, moment, self.start, self.end)

    def _walls_after(self, wall: datetime) -> Iterator[datetime]:
        # One simulator per iteration, and a copy of a parsed one: parsing costs more than a step.
        simulator = copy(_parsed(self.expression))
        simulator.dt = wall.replace(microsecond=0)
        return simulator


def _cron_expression(expression: str) -> str:
    if not isinstance(expression, str):
        raise ConfigurationError(f'{expression!r} is not a cron expression; give a text like "30 2 * * *".')
    expression = " ".join(expression.split())
    if expression.startswith("@"):
        expression = _from_word(expression)
    try:
        next(copy(_parsed(with_numbers(expression, ""))))
    except (CronSimError, ValueError) as problem:
        raise ConfigurationError(
            f"{expression!r} is not a cron expression that can fire ({problem}); write minute, hour, "
            'day of month, month, day of week, e.g. "30 2 * * MON-FRI".'
        ) from None
    except StopIteration:  # cronsim gives up after 50 years
        raise ConfigurationError(
            f"{expression!r} never fires: no date matches all its fields; correct the day and month fields."
        ) from None
    return expression


def _from_word(word: str) -> str:
    if word.lower() not in WORDS:
        raise ConfigurationError(
            f"{word!r} is not a word for a cron expression; {did_you_mean(word, WORDS)}use one of "
            f"{', '.join(WORDS)}. (To run at every start, call the function where the program starts.)"
        )
    return WORDS[word.lower()]


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> CronSim:
    # In UTC, and in a leap year: what does not match within the 50 years that cronsim tries never will.
    return CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))


def cron_from_json(value: Mapping[str, Any]) -> Trigger:
    check_keys(value, ["expression", "tz"], ["start", "end"])
    start, end = (moment_from_json(value, name) for name in ("start", "end"))
    return cron(value["expression"], value["tz"], start=start, end=end)
