"""CronJobs of Kubernetes, from manifests (YAML, several documents, `kind: List`) or `kubectl get cronjobs -A -o json`.

The schedule is read as the controller's cron library reads it: `?` is a star, `3/5` goes on to the end, a step takes
the star's meaning away (`*/2` restricts the days), a day need match only one of two restricted day fields. A time that
the clock skips does not fire, a repeated one fires in both passes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from fencepost import Trigger, cron, every
from fencepost.cli.migrate.crontab import MACROS
from fencepost.cli.migrate.fields import DAY, HOUR, MINUTE, MONTH, CronField, numbers
from fencepost.cli.migrate.fields import WEEKDAYS as WEEKDAY_NAMES
from fencepost.cli.migrate.pods import command_of, table
from fencepost.cli.migrate.values import (
    LONGEST_SECONDS,
    MOST_ENTRIES,
    CannotCarryOver,
    Carried,
    Imported,
    JobIds,
    NotCarriedOver,
    Note,
    OldCalendar,
)
from fencepost.cli.migrate.walk import Grid, Walls, every_pass
from fencepost.errors import ConfigurationError, missing_extra

WEEKDAY = CronField("day of the week", 0, 6, WEEKDAY_NAMES)
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
BACKOFF = {"first": 10, "cap": 360}
"""Kubernetes waits 10 s before the first retry, doubles that, and stops at 6 minutes."""
ALWAYS = (
    Note(
        "the pod (image, resources, volumes, service account, node choice)",
        "commands run inside the replica",
        "let replicas run in an image that has these commands, and give their Deployment what the pods had",
    ),
    Note(
        "defaults of Kubernetes",
        "where a CronJob does not say otherwise, its runs may overlap and a failed one is repeated up to 6 times; "
        "Fencepost skips an overlapping run and does not repeat",
        "write overlap and retry where you rely on it",
    ),
)


def read_cronjobs(text: str, tz: str) -> Imported:
    """`tz`: of the controller manager, which holds where a CronJob has no timeZone."""
    names = JobIds()
    jobs: list[Carried] = []
    left_out: list[NotCarriedOver] = []
    for number, document in enumerate(_items(text), start=1):
        if number > MOST_ENTRIES:
            raise ConfigurationError(
                f"there are more than {MOST_ENTRIES} entries; split the file and import the parts"
            )
        if not isinstance(document, Mapping) or document.get("kind") != "CronJob":
            continue
        origin = f"CronJob {_name(document)}"
        try:
            jobs.append(_job(origin, document, tz, names))
        except CannotCarryOver as problem:
            schedule = str(table(document, "spec").get("schedule", ""))[:60]
            left_out.append(NotCarriedOver(origin, schedule, problem.why, problem.remedy))
    return Imported(tuple(jobs), tuple(left_out), ALWAYS)


def _items(text: str) -> Iterator[Any]:
    for document in _documents(text):
        if isinstance(document, Mapping) and isinstance(document.get("items"), Sequence):
            yield from document["items"]
        else:
            yield document


def _documents(text: str) -> list[Any]:
    try:
        if text.lstrip().startswith("{"):
            return [json.loads(text)]
        return list(_yaml().safe_load_all(text))
    except RecursionError:
        raise ConfigurationError("the file is nested too deeply; import its parts one by one") from None
    except ValueError as error:
        raise ConfigurationError(f"the file is not valid JSON: {error}; correct it there") from None
    except _yaml().YAMLError as error:
        problem = " ".join(str(error).split())[:300]
        raise ConfigurationError(f"the file is not valid YAML: {problem}; correct it there") from None


def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise missing_extra(
            "to read YAML (JSON needs nothing: kubectl get cronjobs -o json)", error, "import"
        ) from None
    return yaml


def _job(origin: str, document: Mapping[str, Any], default_tz: str, names: JobIds) -> Carried:
    spec = table(document, "spec")
    if spec.get("suspend") is True:
        raise CannotCarryOver("it is suspended", "set suspend: false to import it, or leave it out for good")
    tz, schedule = _zone(spec, default_tz)
    old, trigger = _schedule(schedule, tz)
    job = table(table(spec, "jobTemplate"), "spec")
    pod = table(table(job, "template"), "spec")
    body, notes = command_of(pod)
    policies, more = _policies(spec, job)
    if "timeZone" not in spec and default_tz == tz:
        more.append(
            Note(
                "timeZone",
                f"the CronJob has none, so the zone of the controller manager holds; taken as {tz}",
                "give --tz if it runs in another zone",
            )
        )
    id = names.id_for(str(table(document, "metadata").get("name", "")), "cronjob")
    return Carried(id, origin, schedule, old, trigger, body, tz, policies, (*notes, *more))


def _zone(spec: Mapping[str, Any], default: str) -> tuple[str, str]:
    schedule = spec.get("schedule")
    if not isinstance(schedule, str) or not schedule.strip():
        raise CannotCarryOver("spec.schedule is missing", 'add it, as schedule: "30 2 * * *"')
    prefix = re.match(r"(?:CRON_)?TZ=(\S+)\s+(.*)", schedule.strip())
    if prefix:
        return prefix[1], prefix[2]
    tz = spec.get("timeZone", default)
    return str(tz), schedule.strip()


def _schedule(schedule: str, tz: str) -> tuple[OldCalendar, Trigger]:
    try:
        if schedule.startswith("@every "):
            length = _length(schedule.removeprefix("@every ").strip())
            return Grid(length), every(length)
        fields = MACROS.get(schedule, schedule).replace("?", "*").split()
        if len(fields) != 5:
            raise CannotCarryOver(f"{schedule!r} does not have five fields", 'write it like "30 2 * * *"')
        trigger = cron(expression(fields), tz=tz)
        return calendar(fields, tz), trigger
    except ConfigurationError as error:
        why, _, remedy = str(error).partition("; ")
        raise CannotCarryOver(why, remedy or "correct it and import again") from None


def _length(text: str) -> timedelta:
    parts = DURATION.findall(text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text or len(text) > 30:
        raise CannotCarryOver(f"{text!r} is not a duration", "write it like @every 90m")
    seconds = sum(float(amount) * SECONDS[unit] for amount, unit in parts)
    return timedelta(seconds=max(1, round(seconds)))  # the library rounds to seconds


def calendar(fields: Sequence[str], tz: str) -> Walls:
    minute, hour, day, month, weekday = fields
    read: Callable[[str, CronField], set[int]] = lambda text, field: set(  # noqa: E731
        numbers(text, field, open_steps=True)
    )
    days, months, weekdays = read(day, DAY), read(month, MONTH), read(weekday, WEEKDAY)
    either = not _is_star(day) and not _is_star(weekday)

    def is_day(when: date) -> bool:
        in_month, in_week = when.day in days, when.isoweekday() % 7 in weekdays
        return when.month in months and (in_month or in_week if either else in_month and in_week)

    return Walls(
        [0],
        numbers(minute, MINUTE, open_steps=True),
        numbers(hour, HOUR, open_steps=True),
        is_day,
        tz,
        every_pass,
    )


def expression(fields: Sequence[str]) -> str:
    """The same in our cron: steps over single numbers written out, and no star where the library sees none."""
    minute, hour, day, month, weekday = (
        ",".join(_written_out(part, field) for part in text.split(","))
        for text, field in zip(fields, (MINUTE, HOUR, DAY, MONTH, WEEKDAY), strict=True)
    )
    if not _is_star(day) and not _is_star(weekday):
        day, weekday = day.replace("*/", "1-31/"), weekday.replace("*/", "0-6/")
    elif _is_star(day) != _is_star(weekday):  # one is any day, and the other decides alone
        day, weekday = ("*", weekday) if _is_star(day) else (day, "*")
    return " ".join([minute, hour, day, month, weekday])


def _written_out(part: str, field: CronField) -> str:
    span, slash, step = part.partition("/")
    return f"{span}-{field.high}/{step}" if slash and span != "*" and "-" not in span else part


def _is_star(text: str) -> bool:
    """Whether a part of it is a star without a step."""
    return any(re.fullmatch(r"\*(/0*1)?", part) for part in text.split(","))


def _policies(spec: Mapping[str, Any], job: Mapping[str, Any]) -> tuple[dict[str, Any], list[Note]]:
    policies: dict[str, Any] = {}
    notes = []
    match spec.get("concurrencyPolicy"):
        case "Allow":
            policies["overlap"] = "allow(10)"
        case "Forbid":
            policies["overlap"] = "skip"
        case "Replace":
            notes.append(
                Note(
                    "concurrencyPolicy: Replace",
                    "the new run is skipped while the old one goes on",
                    "give the job a timeout shorter than its interval",
                )
            )
    if _whole(spec.get("startingDeadlineSeconds")):
        policies |= {"misfire": "skip", "misfire_after": _seconds(spec["startingDeadlineSeconds"])}
    if _whole(job.get("activeDeadlineSeconds")) and job["activeDeadlineSeconds"] > 0:
        policies["timeout"] = _seconds(job["activeDeadlineSeconds"])
    if _whole(job.get("backoffLimit")) and job["backoffLimit"] > 0:
        policies["retry"] = {"attempts": min(job["backoffLimit"] + 1, 100), **BACKOFF}
    for name in ("completions", "parallelism"):
        if _whole(job.get(name)) and job[name] > 1:
            notes.append(
                Note(
                    f"{name}: {job[name]}",
                    "a fire runs one command once",
                    "start the others from the command",
                )
            )
    return policies, notes


def _name(document: Mapping[str, Any]) -> str:
    metadata = table(document, "metadata")
    return (
        "/".join(str(metadata[part]) for part in ("namespace", "name") if metadata.get(part))
        or "without a name"
    )


def _seconds(value: int) -> int:
    return min(max(1, value), LONGEST_SECONDS)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
