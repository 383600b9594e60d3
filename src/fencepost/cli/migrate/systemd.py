"""systemd timers with the services that they start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from fencepost import every
from fencepost.cli.migrate.oncalendar import on_calendar
from fencepost.cli.migrate.values import (
    LONGEST_SECONDS,
    MOST_ENTRIES,
    CannotCarryOver,
    Carried,
    Imported,
    JobIds,
    NotCarriedOver,
    Note,
    ShellCommand,
)
from fencepost.cli.migrate.walk import Grid
from fencepost.errors import ConfigurationError

Unit = Mapping[str, list[str]]
"""`Timer.OnCalendar` and its kind, to the values in order."""
FILE_LINE = re.compile(r"# (/\S+)\s*$")
SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Zµ]*)\s*")
UNITS = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
    **dict.fromkeys(("ms", "msec"), 0.001),
}
FROM_AN_EVENT = ("OnBootSec", "OnStartupSec", "OnActiveSec")
SINCE_A_RUN = ("OnUnitActiveSec", "OnUnitInactiveSec")
BESIDE = ("ExecStartPre", "ExecStartPost", "ExecCondition", "ExecStop", "ExecStopPost")
ALWAYS = (
    Note(
        "the service's sandbox and limits",
        "commands run as children of the replica",
        "give the replica's own unit the user, limits and sandbox that they need",
    ),
)


def units_of(text: str) -> dict[str, str]:
    """The units in what `systemctl cat` prints: each file begins with its path in a comment. Drop-ins follow theirs."""
    units: dict[str, list[str]] = {}
    name = ""
    for line in text.split("\n"):
        if found := FILE_LINE.match(line):
            name = next((part.removesuffix(".d") for part in found[1].split("/") if _is_unit(part)), "")
        elif name:
            units.setdefault(name, []).append(line)
    return {name: "\n".join(lines) for name, lines in units.items()}


def _is_unit(part: str) -> bool:
    return part.removesuffix(".d").endswith((".timer", ".service"))


def read_timers(texts: Mapping[str, str], tz: str) -> Imported:
    """`texts`: of unit files by their names, timers and services."""
    names = JobIds()
    units = {name: _parsed(text) for name, text in texts.items()}
    jobs: list[Carried] = []
    left_out: list[NotCarriedOver] = []
    for name in sorted(name for name in units if name.endswith(".timer")):
        try:
            jobs += _jobs(name, units, tz, names)
        except CannotCarryOver as problem:
            shown = "; ".join(units[name].get("Timer.OnCalendar", []))[:60]
            left_out.append(NotCarriedOver(name, shown, problem.why, problem.remedy))
        if len(jobs) + len(left_out) > MOST_ENTRIES:
            raise ConfigurationError(f"there are more than {MOST_ENTRIES} timers; import them in parts")
    return Imported(tuple(jobs), tuple(left_out), ALWAYS)


def _parsed(text: str) -> Unit:
    section, found = "", dict[str, list[str]]()
    for line in re.sub(r"\\\n", " ", text).split("\n"):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
            continue
        name, equals, value = line.partition("=")
        key = f"{section}.{name.strip()}"
        if equals and value.strip():
            found.setdefault(key, []).append(value.strip())
        else:
            found[key] = []  # an empty value forgets those before it
    return found


def _jobs(name: str, units: Mapping[str, Unit], tz: str, names: JobIds) -> Iterator[Carried]:
    timer, stem = units[name], name.removesuffix(".timer")
    if "@" in name:
        raise CannotCarryOver(
            "it is an instance of a template", "write its service out without % and import it again"
        )
    service_name = _last(timer, "Timer.Unit") or f"{stem}.service"
    if service_name not in units:
        raise CannotCarryOver(
            f"its service {service_name} is not there",
            "put the service beside the timer, or import what `systemctl cat` prints of both",
        )
    body, policies, notes = _service(units[service_name])
    notes += _about(timer)
    if timer.get("Timer.OnCalendar"):
        persistent = (_last(timer, "Timer.Persistent") or "no").lower() in ("yes", "true", "on", "1")
        policies["misfire"] = "latest" if persistent else "skip"
    shared = Carried("", name, "", Grid(timedelta(1)), every(days=1), body, tz, policies, tuple(notes))
    made = [*_calendars(timer, shared, tz), *_intervals(timer, shared)]
    if not made:
        raise CannotCarryOver(
            "it counts from the start of a machine or of the timer, not by the clock",
            "start the service with the machine, or give the timer an OnCalendar=",
        )
    for job in made:
        yield replace(job, id=names.id_for(stem))


def _calendars(timer: Unit, shared: Carried, tz: str) -> Iterator[Carried]:
    for text in timer.get("Timer.OnCalendar", []):
        try:
            when = on_calendar(text, tz)
            yield replace(shared, schedule=text, old=when.calendar(), trigger=when.trigger(), tz=when.tz)
        except ConfigurationError as error:
            why, _, remedy = str(error).partition("; ")
            raise CannotCarryOver(why, remedy or "correct it and import again") from None


def _intervals(timer: Unit, shared: Carried) -> Iterator[Carried]:
    for key in SINCE_A_RUN:
        for text in timer.get(f"Timer.{key}", []):
            length = span(text)
            since = "start" if key == "OnUnitActiveSec" else "end"
            note = Note(
                key,
                f"systemd counts from the {since} of the last run; Fencepost draws a fixed grid from the moment "
                "the job is first stored",
                "set anchor to choose the moment",
            )
            yield replace(
                shared,
                schedule=f"{key}={text}",
                old=Grid(length),
                trigger=every(length),
                notes=(*shared.notes, note),
            )


def _about(timer: Unit) -> list[Note]:
    notes = []
    for key in ("RandomizedDelaySec", "RandomizedOffsetSec"):
        if (text := _last(timer, f"Timer.{key}")) and span(text):
            notes.append(
                Note(f"{key}={text}", "fires come at their exact time", "give jobs different minutes")
            )
    for key in FROM_AN_EVENT:
        if text := _last(timer, f"Timer.{key}"):
            notes.append(
                Note(f"{key}={text}", "it is an event of one machine", "run the job by `fencepost trigger`")
            )
    if len(timer.get("Timer.OnCalendar", [])) > 1:
        notes.append(
            Note(
                "several OnCalendar=",
                "each becomes a job of its own, and overlap is decided per job",
                "join them to one cron expression where that can be said",
            )
        )
    return notes


def _service(service: Unit) -> tuple[ShellCommand, dict[str, Any], list[Note]]:
    commands = service.get("Service.ExecStart", [])
    if not commands:
        raise CannotCarryOver("its service has no ExecStart=", "add one, or leave the timer out")
    notes = []
    if user := _last(service, "Service.User"):
        notes.append(Note(f"User={user}", "commands run as the replica's user", f"run the replica as {user}"))
    for key in BESIDE:
        if service.get(f"Service.{key}"):
            notes.append(
                Note(f"{key}=", "only ExecStart= is carried over", "call it in the command, before or after")
            )
    if files := service.get("Service.EnvironmentFile"):
        notes.append(
            Note(f"EnvironmentFile={files[-1]}", "the file is not read", "give it to the replica's own unit")
        )
    policies: dict[str, Any] = {}
    limit = _last(service, "Service.TimeoutStartSec") or _last(service, "Service.RuntimeMaxSec")
    if limit and limit != "infinity" and span(limit):
        policies["timeout"] = min(span(limit).total_seconds(), LONGEST_SECONDS)
    cwd = (_last(service, "Service.WorkingDirectory") or "").removeprefix("-") or None
    return ShellCommand(_command(commands), _environment(service), cwd), policies, notes


def _environment(service: Unit) -> dict[str, str]:
    pairs = [pair for line in service.get("Service.Environment", []) for pair in _words(line)]
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def _command(lines: list[str]) -> str | list[str]:
    if len(lines) == 1 and "$" not in lines[0] and lines[0][0] not in "-@:+!|":
        return [word.replace("%%", "%") for word in _checked(lines[0])]
    return " && ".join(_for_shell(line) for line in lines)


def _for_shell(line: str) -> str:
    """The words for /bin/sh, with nothing but variables replaced. A leading `-` lets the command fail."""
    prefix = re.match(r"[-@:+!|]*", line)[0]  # type: ignore[index]
    words = []
    for word in _checked(line.removeprefix(prefix)):
        word = word.replace("%%", "%")
        if "$" not in word or ":" in prefix:
            words.append(shlex.quote(word))
        elif re.fullmatch(r"\$\w+", word):
            words.append(word)  # a word of its own is split, as systemd does
        else:
            quoted = word.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`").replace("$$", "\\$")
            words.append(f'"{quoted}"')
    if "@" in prefix:
        del words[1:2]  # the name it shows
    text = " ".join(words)
    return f"{{ {text} || true; }}" if "-" in prefix else text


def _checked(line: str) -> list[str]:
    if found := re.search(r"%[A-Za-z]", line.replace("%%", "")):
        raise CannotCarryOver(
            f"its command uses {found[0]}, which systemd replaces",
            "write out what it stands for, and import again",
        )
    words = _words(line)
    if not words:
        raise CannotCarryOver("its command is empty", "add one, or leave the timer out")
    return words


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        raise CannotCarryOver("a quotation mark is missing", "close the quotation in the unit") from None


def span(text: str) -> timedelta:
    parts = SPAN.findall(text)
    if (
        not parts
        or SPAN.sub("", text).strip()
        or any(unit not in UNITS for _, unit in parts)
        or len(text) > 100
    ):
        raise CannotCarryOver(f"{text!r} is not a time span that is known", "write it like 1h 30min")
    try:
        return timedelta(seconds=sum(float(amount) * UNITS[unit] for amount, unit in parts))
    except OverflowError:
        raise CannotCarryOver(f"{text!r} is too long", "write it like 1h 30min") from None


def _last(unit: Unit, key: str) -> str | None:
    values = unit.get(key)
    return values[-1] if values else None
