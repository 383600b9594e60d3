"""The events of an iCalendar file (RFC 5545): whole days, and windows of time.

Reads what calendar programs export and no more: VEVENT with DTSTART, DTEND or DURATION, SUMMARY, RRULE, EXDATE,
RECURRENCE-ID and STATUS. Everything is bounded: the file, the events, the years in which a rule is followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from fencepost.errors import ConfigurationError
from fencepost.model.calendars.rules import parsed

LARGEST_FILE = 2_000_000
MOST_EVENTS = 10_000
MOST_TIMES = 1_000
"""How often one event may recur in all the years."""
LONGEST_EVENT = timedelta(days=366)

Window = tuple[datetime, datetime, str]
When = date | datetime


@dataclass
class CalendarEvent:
    line: int
    start: When | None = None
    end: When | None = None
    duration: timedelta | None = None
    summary: str = ""
    uid: str = ""
    rule: str = ""
    without: set[When] = field(default_factory=set)
    replaces: When | None = None
    cancelled: bool = False


def closed_times(path: Path, years: range, tz: str | None) -> tuple[dict[date, str], list[Window]]:
    """The whole days with their names, and the windows. `tz`: where times are that name no zone."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ConfigurationError(
                f"{path} is larger than {LARGEST_FILE} bytes; export fewer years or events."
            )
        text = path.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise ConfigurationError(f"cannot read the calendar {path}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"the calendar {path} is not UTF-8 text; export it again.") from None
    try:
        return _closed(list(_events(text, ZoneInfo(tz or "UTC"))), years)
    except _Unreadable as problem:
        raise ConfigurationError(f"{path}, line {problem.line}: {problem}") from None


def _closed(events: list[CalendarEvent], years: range) -> tuple[dict[date, str], list[Window]]:
    replaced = {(event.uid, event.replaces) for event in events if event.replaces is not None}
    days: dict[date, str] = {}
    windows: list[Window] = []
    for event in events:
        if event.cancelled or event.start is None:
            continue
        length = _length(event, event.start)
        for start in _starts(event, event.start, years):
            if (event.rule and (event.uid, start) in replaced) or start in event.without:
                continue
            if isinstance(start, datetime):
                end = _later(start, length)
                if length and start.year in years:
                    windows.append((start.astimezone(UTC), end.astimezone(UTC), event.summary))
            else:
                for number in range(length.days):
                    day = start + timedelta(days=number)
                    if day.year in years:
                        days[day] = event.summary
    return days, windows


def _length(event: CalendarEvent, start: When) -> timedelta:
    whole_day = not isinstance(start, datetime)
    if event.duration is not None:
        length = event.duration
    elif event.end is None:
        length = timedelta(days=whole_day)
    elif isinstance(event.end, datetime) == whole_day:
        raise _Unreadable(event.line, "DTSTART and DTEND are not both dates or both times")
    else:
        length = event.end - start
    if not timedelta(0) <= length <= LONGEST_EVENT:
        raise _Unreadable(event.line, f"the event lasts {length}; it must end after it starts, within a year")
    return max(length, timedelta(days=1)) if whole_day else length


def _later(start: datetime, length: timedelta) -> datetime:
    return (start.astimezone(UTC) + length).astimezone(start.tzinfo)


def _starts(event: CalendarEvent, start: When, years: range) -> Iterator[When]:
    """Once, or by the rule as far as the years go."""
    if not event.rule:
        yield start
        return
    timed = isinstance(start, datetime)
    zone = start.tzinfo if isinstance(start, datetime) else UTC
    wall = datetime.combine(start, start.time() if isinstance(start, datetime) else time(), UTC)
    try:
        rule = parsed(_with_time_in_until(event.rule), wall, _WallIn(zone))
    except ConfigurationError as problem:
        raise _Unreadable(event.line, f"RRULE:{event.rule}: {problem}") from None
    if rule.within_days:
        raise _Unreadable(event.line, "an event that recurs within a day closes no days; take it out")
    begin = datetime(years[0], 1, 1, tzinfo=UTC) - LONGEST_EVENT
    for number, found in enumerate(rule.walls_after(max(wall, begin))):
        if found.year > years[-1]:
            return
        if number == MOST_TIMES:
            raise _Unreadable(event.line, f"the event recurs more than {MOST_TIMES} times; use weekend=")
        yield found.replace(tzinfo=zone) if timed else found.date()


def _with_time_in_until(rule: str) -> str:
    """Rules of whole days end with a date."""
    return re.sub(r"(UNTIL=\d{8})(?=;|$)", r"\1T235959", rule)


@dataclass(frozen=True)
class _WallIn:
    zone: tzinfo | None

    def __call__(self, moment: datetime) -> datetime:
        return moment.astimezone(self.zone).replace(tzinfo=UTC)


# Reading lines.


class _Unreadable(Exception):
    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


@dataclass(frozen=True)
class _Line:
    number: int
    name: str
    parameters: dict[str, str]
    value: str


def _events(text: str, zone: ZoneInfo) -> Iterator[CalendarEvent]:
    event: CalendarEvent | None = None
    inside: list[str] = []
    number = 0
    for line in _lines(text):
        if line.name == "BEGIN":
            inside.append(line.value.upper())
            if inside[-1] == "VEVENT":
                event, number = CalendarEvent(line.number), number + 1
            if number > MOST_EVENTS or len(inside) > 10:
                raise _Unreadable(line.number, f"more than {MOST_EVENTS} events, or too deep")
        elif line.name == "END":
            if not inside or inside.pop() != line.value.upper():
                raise _Unreadable(line.number, f"END:{line.value} without its BEGIN")
            if line.value.upper() == "VEVENT" and event is not None:
                yield event
                event = None
        elif event is not None and inside[-1:] == ["VEVENT"]:
            _note(event, line, zone)
    if inside or text.strip()[:15].upper() != "BEGIN:VCALENDAR":
        raise _Unreadable(1, "this is not a whole iCalendar file: BEGIN:VCALENDAR … END:VCALENDAR")


def _lines(text: str) -> Iterator[_Line]:
    """Long lines are folded: what begins with a blank continues the line before."""
    unfolded: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line[:1] in (" ", "\t") and unfolded:
            unfolded[-1] = (unfolded[-1][0], unfolded[-1][1] + line[1:])
        elif line.strip():
            unfolded.append((number, line))
    for number, line in unfolded:
        found = re.match(
            r"([A-Za-z0-9-]+)((?:;[A-Za-z0-9-]+=(?:\"[^\"]*\"|[^\";:]*))*):(.*)", line, re.DOTALL
        )
        if found is None:
            raise _Unreadable(number, f"{line[:50]!r} is not NAME:value")
        parameters = dict(
            part.partition("=")[::2] for part in re.findall(r';([^;=]+=(?:"[^"]*"|[^;]*))', found[2])
        )
        named = {name.upper(): value.strip('"') for name, value in parameters.items()}
        yield _Line(number, found[1].upper(), named, found[3].strip())


def _note(event: CalendarEvent, line: _Line, zone: ZoneInfo) -> None:
    if line.name == "DTSTART":
        event.start = _when(line, line.value, zone)
    elif line.name == "DTEND":
        event.end = _when(line, line.value, zone)
    elif line.name == "DURATION":
        event.duration = _span(line)
    elif line.name == "SUMMARY":
        event.summary = re.sub(
            r"\\([\\;,nN])", lambda found: found[1].replace("n", " ").replace("N", " "), line.value
        )
    elif line.name == "UID":
        event.uid = line.value
    elif line.name == "RRULE":
        event.rule = line.value.upper()
    elif line.name == "EXDATE":
        event.without |= {_when(line, value, zone) for value in line.value.split(",")}
    elif line.name == "RECURRENCE-ID":
        event.replaces = _when(line, line.value, zone)
    elif line.name == "STATUS":
        event.cancelled = line.value.upper() == "CANCELLED"


def _when(line: _Line, value: str, zone: ZoneInfo) -> When:
    """A date, or a time in UTC (Z), in the zone that the line names, or in that of the calendar."""
    try:
        if re.fullmatch(r"\d{8}", value):
            return datetime.strptime(value, "%Y%m%d").replace(tzinfo=UTC).date()
        found = re.fullmatch(r"(\d{8}T\d{6})(Z)?", value)
        if found is None:
            raise ValueError
        wall = datetime.strptime(found[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise _Unreadable(line.number, f"{line.name} {value!r} is neither a date nor a time") from None
    if found[2]:
        return wall
    name = line.parameters.get("TZID")
    try:
        return wall.replace(tzinfo=zone if name is None else ZoneInfo(name))
    except (KeyError, ValueError, OSError):
        raise _Unreadable(
            line.number,
            f"TZID {name!r} is not an IANA zone such as Europe/Zurich; export the calendar with those",
        ) from None


def _span(line: _Line) -> timedelta:
    found = re.fullmatch(
        r"\+?P(?:(\d{1,3})W)?(?:(\d{1,3})D)?(?:T(?:(\d{1,4})H)?(?:(\d{1,5})M)?(?:(\d{1,6})S)?)?", line.value
    )
    if found is None:
        raise _Unreadable(line.number, f"DURATION {line.value!r} is not a duration such as P1D or PT2H")
    weeks, days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
