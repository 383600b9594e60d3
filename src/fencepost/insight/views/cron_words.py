"""Schedules in words: `30 2 * * 1-5` is "at 02:30 from Monday to Friday".

An expression that does not fit the usual forms keeps its own spelling. Nothing is expanded: the cost follows the
length of the text, not the numbers in it.
"""

from __future__ import annotations

import re
from typing import Final

from fencepost.model.triggers import Cron, Trigger, describe_bounds

LONGEST: Final = 200
MOST_TIMES: Final = 4
DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
SHORT_DAYS: Final = {day[:3].upper(): number for number, day in enumerate(DAYS[:7])}
SHORT_MONTHS: Final = {month[:3].upper(): number for number, month in enumerate(MONTHS, start=1)}
_PART = re.compile(r"(\d{1,2})(?:-(\d{1,2}))?")


def schedule_in_words(trigger: Trigger | None) -> str:
    """For people; the exact expression stands beside it."""
    if trigger is None:
        return "when triggered"
    if not isinstance(trigger, Cron):
        return trigger.describe()
    words = cron_in_words(trigger.expression)
    if words is None:
        return trigger.describe()
    zone = "" if trigger.tz == "UTC" else f" in {trigger.tz}"
    return f"{words}{zone}{describe_bounds(trigger.start, trigger.end)}"


def cron_in_words(expression: str) -> str | None:
    """None: it is not of a usual form."""
    fields = expression.split() if len(expression) <= LONGEST else []
    if len(fields) != 5:
        return None
    minute, hour, day, month, weekday = fields
    when, days = _times(minute, hour), _days(day, month, weekday)
    if when is None or days is None:
        return None
    often = when.startswith("every")
    return f"{when}{days}" if days else when if often else f"{when} every day"


def _times(minute: str, hour: str) -> str | None:
    if minute == "*" and hour == "*":
        return "every minute"
    if (step := _step(minute, 60)) and hour == "*":
        return f"every {step} minutes"
    minutes, hours = _numbers(minute, 59), _numbers(hour, 23)
    if minutes is None or len(minutes) > MOST_TIMES:
        return _within_hours(minute, hour)
    if hour == "*":
        return (
            "every hour" if minutes == [0] else f"every hour at {_and([f':{each:02}' for each in minutes])}"
        )
    if step := _step(hour, 24):
        return f"every {step} hours at {_and([f':{each:02}' for each in minutes])}"
    if hours is None or len(hours) * len(minutes) > MOST_TIMES:
        return _within_hours(minute, hour)
    return f"at {_and([f'{each:02}:{past:02}' for each in hours for past in minutes])}"


def _within_hours(minute: str, hour: str) -> str | None:
    """`*/5 9-17`"""
    found = _PART.fullmatch(hour)
    if found is None or int(found[2] or found[1]) > 23 or int(found[1]) > int(found[2] or found[1]):
        return None
    step, minutes = _step(minute, 60), _numbers(minute, 59)
    often = "every minute" if minute == "*" else f"every {step} minutes" if step else None
    if often is None and minutes is not None and len(minutes) <= MOST_TIMES:
        often = (
            "every hour" if minutes == [0] else f"every hour at {_and([f':{each:02}' for each in minutes])}"
        )
    return often and f"{often} from {int(found[1]):02}:00 to {int(found[2] or found[1]):02}:59"


def _days(day: str, month: str, weekday: str) -> str | None:
    """Empty: every day. Cron joins a day of the month and a weekday by "or", which is better left as it is written."""
    if day != "*" and weekday != "*":
        return None
    words: str | None = ""
    if weekday != "*":
        named = _named(weekday, SHORT_DAYS, DAYS, 7)
        words = named if named is None else f" {named}"
    elif day == "L":
        words = " on the last day of the month"
    elif day != "*":
        days = _numbers(day, 31)
        if days is None or 0 in days or len(days) > MOST_TIMES:
            return None
        one = "day" if len(days) == 1 else "days"
        words = f" on {one} {_and(list(map(str, days)))}" + (" of the month" if month == "*" else "")
    if words is None or month == "*":
        return words
    months = _named(month, SHORT_MONTHS, ("", *MONTHS), 12, "in")
    return None if months is None else f"{words} {months}"


def _named(
    text: str, short: dict[str, int], names: tuple[str, ...], most: int, before: str = "on"
) -> str | None:
    plain = re.sub(r"[A-Za-z]{3}", lambda found: str(short.get(found[0].upper(), 99)), text)
    found = re.fullmatch(r"(\d{1,2})-(\d{1,2})", plain)
    if (
        found
        and int(found[1]) <= most
        and int(found[2]) <= most
        and names[int(found[1])]
        and names[int(found[2])]
    ):
        return f"from {names[int(found[1])]} to {names[int(found[2])]}"
    numbers = _numbers(plain, most)
    if numbers is None or len(numbers) > MOST_TIMES or not all(names[each] for each in numbers):
        return None
    return f"{before} {_and([names[each] for each in numbers])}"


def _numbers(text: str, most: int) -> list[int] | None:
    """A list of single numbers; None: something else."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) <= 2 for part in parts):
        return None
    numbers = [int(part) for part in parts]
    return numbers if all(number <= most for number in numbers) else None


def _step(text: str, whole: int) -> int | None:
    """`*/5`, where it divides the hour or the day evenly: else the last step of each is shorter."""
    found = re.fullmatch(r"\*/(\d{1,2})", text)
    step = int(found[1]) if found else 0
    return step if 1 < step < whole and whole % step == 0 else None


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
