"""Fields of cron-like schedules: from text to numbers by the rules of a system, and from numbers to our text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fencepost.cli.migrate.values import CannotCarryOver

MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTHS = {name: number for number, name in enumerate(MONTH_NAMES, start=1)}
WEEKDAYS = {name: n for n, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
WEEK_BLOCKS = {tuple(range(first, first + 7)): n for n, first in enumerate((1, 8, 15, 22), start=1)}


@dataclass(frozen=True)
class CronField:
    """The numbers that a field may hold, and the names for them."""

    name: str
    low: int
    high: int
    names: Mapping[str, int]

    def number(self, text: str) -> int:
        value = self.names.get(text.lower()[:3]) if text.isalpha() and len(text) >= 3 else None
        if value is None and text.isascii() and text.isdigit() and len(text) <= 4:
            value = int(text)
        if value is None or not self.low <= value <= self.high:
            raise CannotCarryOver(
                f"{text!r} is no {self.name}", f"write a {self.name} from {self.low} to {self.high}"
            )
        return value


MINUTE = CronField("minute", 0, 59, {})
HOUR = CronField("hour", 0, 23, {})
DAY = CronField("day of the month", 1, 31, {})
MONTH = CronField("month", 1, 12, MONTHS)
WEEKDAY = CronField("day of the week", 0, 7, WEEKDAYS)


def numbers(text: str, field: CronField, *, open_steps: bool = False, wraps: bool = False) -> list[int]:
    """The numbers that `1,5-9,*/15` means. `open_steps`: `3/5` is 3, 8, 13, … to the end; `wraps`: `22-2` goes
    over the end."""
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        found.update(_span(span, field, bool(slash), open_steps, wraps)[:: _step(step, part) if slash else 1])
    return sorted(found)


def _span(span: str, field: CronField, stepped: bool, open_steps: bool, wraps: bool) -> Sequence[int]:
    if span == "*":
        return range(field.low, min(field.high, 6 if field is WEEKDAY else field.high) + 1)
    low, dash, high = span.partition("-")
    first = field.number(low)
    if dash:
        last = field.number(high)
        if last < first and wraps:
            return [*range(first, field.high + 1), *range(field.low, last + 1)]
        if last < first:
            raise CannotCarryOver(f"{span!r} ends before it begins", "write the smaller number first")
        return range(first, last + 1)
    if not stepped:
        return [first]
    if open_steps:
        return range(first, field.high + 1)
    raise CannotCarryOver(
        f"{span}/… has a step without a range, which cron daemons read differently",
        f"write {first}-{field.high}/…, or {first} alone",
    )


def _step(text: str, part: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and int(text) > 0):
        raise CannotCarryOver(f"the step in {part!r} is not a number above 0", "write it like */5")
    return int(text)


# From numbers to our text.


def compact(values: Iterable[int], field: CronField) -> str:
    """The shortest usual text: `*`, `*/15`, `9-17`, `8-18/2`, `1,2,5`."""
    found = sorted(set(values))
    high = 6 if field is WEEKDAY else field.high
    if found == list(range(field.low, high + 1)):
        return "*"
    step = found[1] - found[0] if len(found) > 2 else 0
    if step and found == list(range(found[0], found[-1] + 1, step)):
        if found == list(range(field.low, high + 1, step)):
            return f"*/{step}"
        return f"{found[0]}-{found[-1]}" + (f"/{step}" if step > 1 else "")
    return ",".join(map(str, found))


def both_days(days: Sequence[int], weekdays: Sequence[int]) -> tuple[str, str]:
    """The two day fields for systems where a day must match both of them.

    Our `cron` fires when either matches, unless one of them begins with a star; so one must be written so.
    """
    day, weekday = compact(days, DAY), compact(weekdays, WEEKDAY)
    if "*" in (day, weekday) or day.startswith("*/") or weekday.startswith("*/"):
        return day, weekday
    if block := WEEK_BLOCKS.get(tuple(days)):
        return "*", ",".join(f"{number}#{block}" for number in weekdays)
    if days[0] == 1:
        return _begun_with_star("*/31", days[1:]), weekday
    if weekdays[0] == 0:
        return day, _begun_with_star("*/7", weekdays[1:])
    raise CannotCarryOver(
        f"a day must be one of {day} in the month and also {weekday} in the week, which one cron expression cannot say",
        "let the job run on the days of the month, and let its code return on other weekdays",
    )


def _begun_with_star(star: str, others: Sequence[int]) -> str:
    """`*/31` is the 1st and `*/7` is Sunday; the star makes the field one that must match."""
    return ",".join([star, *map(str, others)])


def words(line: str, count: int) -> list[str]:
    """The first `count` words of a line, and the rest as it is."""
    found = re.split(r"[ \t]+", line.strip(" \t"), maxsplit=count)
    return found if len(found) > count else [*found, ""]
