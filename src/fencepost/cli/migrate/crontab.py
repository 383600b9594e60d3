"""A crontab, as Debian's cron and cronie read it.

- Five fields and a command; `@daily` and its kind; `@reboot` is an event of one machine and no schedule.
- When both day fields are restricted a day need match only one; a day field that begins with a star must match.
- A job whose minute or hour begins with a star follows the clock. Any other runs once for a skipped time, when the
  gap ends, and once for a repeated one.
- `NAME=value` lines hold from there on; `CRON_TZ` names the zone. `%` in a command is a new line, and what follows the
  first is its standard input.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import PurePath

from fencepost import cron
from fencepost.cli.migrate.fields import DAY, HOUR, MINUTE, MONTH, WEEKDAY, numbers, words
from fencepost.cli.migrate.values import (
    MOST_ENTRIES,
    CannotCarryOver,
    Carried,
    Imported,
    JobIds,
    NotCarriedOver,
    Note,
    ShellCommand,
)
from fencepost.cli.migrate.walk import Walls, after_the_gap, every_pass
from fencepost.errors import ConfigurationError

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
ENVIRONMENT = re.compile(r"""\s*(["']?)([A-Za-z_][A-Za-z0-9_]*)\1\s*=\s*(.*?)\s*$""")
NOT_ENVIRONMENT = frozenset({"SHELL", "HOME", "MAILTO", "MAILFROM", "CRON_TZ", "LOGNAME", "USER"})
"""Names that cron itself reads."""
PREFIXES = {
    "nice": 0,
    "ionice": 0,
    "flock": 1,
    "timeout": 1,
    "sudo": 0,
    "env": 0,
    "exec": 0,
    "time": 0,
    "chronic": 0,
}
"""Programs that run another, and how many words of their own come before it."""
INTERPRETERS = re.compile(r"(python|ruby|perl|php|node|bash|sh|dash|zsh)[\d.]*$")

ALWAYS = (
    Note(
        "overlap",
        "cron starts a run beside one that has not ended; Fencepost skips it",
        'write overlap = "allow(3)" where runs may overlap',
    ),
    Note(
        "missed fires",
        "cron forgets what fell due while the machine was down; Fencepost runs the latest one late",
        'write misfire = "skip" to forget it, too',
    ),
    Note(
        "environment",
        "cron starts commands in the home folder with PATH=/usr/bin:/bin; Fencepost in the job file's folder with the "
        "environment of the replica",
        "write absolute paths, or cwd and env",
    ),
)


@dataclass
class _Setting:
    """What the lines so far have set."""

    tz: str
    env: dict[str, str] = field(default_factory=dict)
    mail: bool = False


def read_crontab(text: str, tz: str, *, system: bool = False) -> Imported:
    """`system`: with a user column, as /etc/crontab and the files of /etc/cron.d have it."""
    names, setting = JobIds(), _Setting(tz)
    jobs: list[Carried] = []
    left_out: list[NotCarriedOver] = []
    users: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#") or _sets(line, setting):
            continue
        origin = f"line {number}"
        try:
            if len(jobs) + len(left_out) >= MOST_ENTRIES:
                raise ConfigurationError(
                    f"there are more than {MOST_ENTRIES} entries; split the file and import the parts"
                )
            schedule, user, command = _parts(stripped, system)
            users.update([user] if user else [])
            jobs.append(_job(origin, schedule, command, setting, names))
        except CannotCarryOver as problem:
            left_out.append(NotCarriedOver(origin, _shown(stripped), problem.why, problem.remedy))
    return Imported(tuple(jobs), tuple(left_out), (*ALWAYS, *_about(setting, users)))


def _sets(line: str, setting: _Setting) -> bool:
    found = ENVIRONMENT.match(line)
    if not found:
        return False
    name, value = found[2], found[3]
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    setting.env[name] = value
    if name == "CRON_TZ":
        setting.tz = value
    setting.mail = setting.mail or (name == "MAILTO" and value != "")
    return True


def _parts(line: str, system: bool) -> tuple[str, str, str]:
    """Schedule, user and command of a line."""
    if line.startswith("@"):
        macro, rest = words(line, 1)
        if macro.lower() == "@reboot":
            raise CannotCarryOver(
                "@reboot is an event of one machine, not a time",
                "start the command with the machine (a systemd service), or beside `fencepost run`",
            )
        if macro.lower() not in MACROS:
            raise CannotCarryOver(f"{macro} is not known", f"use one of {', '.join(MACROS)}, or five fields")
        schedule = macro
    else:
        *fields, rest = words(line, 5)
        if len(fields) < 5:
            raise CannotCarryOver("a line has five fields and a command", "write it like 30 2 * * * command")
        schedule = " ".join(fields)
    user = ""
    if system:
        user, rest = words(rest, 1)
    if not rest:
        raise CannotCarryOver(
            "there is no command after the schedule",
            "add it, or say --system or --no-system: system crontabs have a user before the command",
        )
    return schedule, user, rest


def _job(origin: str, schedule: str, command: str, setting: _Setting, names: JobIds) -> Carried:
    fields = MACROS.get(schedule.lower(), schedule)
    try:
        old = calendar(fields, setting.tz)
        trigger = cron(fields, tz=setting.tz)
    except ConfigurationError as error:
        raise CannotCarryOver(*_halves(str(error))) from None
    return Carried(
        id=names.id_for(name_of(command)),
        origin=origin,
        schedule=schedule,
        old=old,
        trigger=trigger,
        body=_body(command, setting),
        tz=setting.tz,
    )


def calendar(fields: str, tz: str) -> Walls:
    minute, hour, day, month, weekday = fields.split(" ")
    days, months = set(numbers(day, DAY)), set(numbers(month, MONTH))
    weekdays = {number % 7 for number in numbers(weekday, WEEKDAY)}
    either = not day.startswith("*") and not weekday.startswith("*")

    def is_day(when: date) -> bool:
        in_month, in_week = when.day in days, when.isoweekday() % 7 in weekdays
        return when.month in months and (in_month or in_week if either else in_month and in_week)

    follows_the_clock = minute.startswith("*") or hour.startswith("*")
    cron(fields, tz=tz)  # refuses an unknown zone and dates that never come
    return Walls(
        [0],
        numbers(minute, MINUTE),
        numbers(hour, HOUR),
        is_day,
        tz,
        every_pass if follows_the_clock else after_the_gap,
    )


def _body(command: str, setting: _Setting) -> ShellCommand:
    """What cron gives to the shell, with standard input from the text after the first `%`."""
    text, *lines = (part.replace(r"\%", "%") for part in re.split(r"(?<!\\)%", command))
    text = text.strip()
    if lines:
        text = f"printf '%s\\n' {shlex.join(lines)} | {{ {text}; }}"
    env = {name: value for name, value in setting.env.items() if name not in NOT_ENVIRONMENT}
    shell = setting.env.get("SHELL", "/bin/sh")
    words: str | Sequence[str] = text if shell == "/bin/sh" else [shell, "-c", text]
    return ShellCommand(words, env, setting.env.get("HOME"))


def _about(setting: _Setting, users: set[str]) -> list[Note]:
    notes = []
    if "CRON_TZ" in setting.env:
        notes.append(
            Note(
                "CRON_TZ",
                "it is read as cronie reads it; Debian's cron ignores it",
                "if yours ignores it, take the line out and give --tz",
            )
        )
    if setting.mail:
        notes.append(
            Note(
                "MAILTO",
                "cron mails what a command prints; Fencepost keeps its end with the fire",
                "look at it with `fencepost show JOB`, and be told of failures by @scheduler.on or your monitoring",
            )
        )
    if users:
        notes.append(
            Note(
                f"the user column ({', '.join(sorted(users)[:10])})",
                "a replica runs all its commands as its own user",
                "start a replica per user with its own namespace, or begin the command with sudo -u",
            )
        )
    return notes


def name_of(command: str) -> str:
    """A short name for a command: of the script or program that it runs."""
    first, *others = re.split(r"&&|;", command)
    try:
        parts = shlex.split(others[-1] if others and first.split()[:1] == ["cd"] else first)
    except ValueError:
        parts = first.split()
    values = 0  # of a prefix, as the lock file of flock
    while parts:
        word = parts.pop(0)
        stem = PurePath(word).name
        if word.startswith("-"):
            del parts[: word in ("-u", "-g") or (bool(parts) and parts[0].isdigit())]
        elif stem in PREFIXES:
            values += PREFIXES[stem]
        elif values:
            values -= 1
        elif INTERPRETERS.match(stem) and parts[:1] in (["-m"], ["-c"]) and len(parts) > 1:
            return parts[1] if parts[0] == "-m" else name_of(parts[1])
        elif "=" not in word and not INTERPRETERS.match(stem):
            return PurePath(stem).stem
    return "job"


def _shown(line: str) -> str:
    """The beginning of a line: what follows may be a command with a password in it."""
    return " ".join(line.split()[: 1 if line.startswith("@") else 5])[:60]


def _halves(message: str) -> tuple[str, str]:
    why, _, remedy = message.partition("; ")
    return why, remedy or "correct it and import again"
