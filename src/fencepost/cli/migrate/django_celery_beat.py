"""The tables of django-celery-beat, from `manage.py dumpdata django_celery_beat`. No database is opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost.cli.migrate.beat import ALWAYS, BeatEntry, Crontab, carried
from fencepost.cli.migrate.celery import NO_APP
from fencepost.cli.migrate.values import MOST_ENTRIES, CannotCarryOver, Imported
from fencepost.errors import ConfigurationError

PERIODS = {
    "days": timedelta(days=1),
    "hours": timedelta(hours=1),
    "minutes": timedelta(minutes=1),
    "seconds": timedelta(seconds=1),
    "microseconds": timedelta(microseconds=1),
}
OPTIONS = ("queue", "exchange", "routing_key", "priority")
Row = Mapping[str, Any]


def read_dump(text: str, tz: str | None, app: str | None) -> Imported:
    tables = _tables(text)
    tasks = tables.get("periodictask", {})
    if not tasks:
        raise ConfigurationError(
            "there is no django_celery_beat.periodictask in the file; make it with "
            "`python manage.py dumpdata django_celery_beat > beat.json`"
        )
    if len(tasks) > MOST_ENTRIES:
        raise ConfigurationError(f"there are more than {MOST_ENTRIES} entries; dump them in parts")
    entries = [_entry(row, tables) for row in tasks.values()]
    notes = ALWAYS if app else (NO_APP, *ALWAYS)
    return Imported(*carried(entries, tz or "UTC", app), notes)


def _tables(text: str) -> dict[str, dict[str, Row]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"the file is not valid JSON ({error}); make it with `python manage.py dumpdata django_celery_beat`"
        ) from None
    tables: dict[str, dict[str, Row]] = {}
    for number, row in enumerate(rows if isinstance(rows, list) else []):
        if isinstance(row, Mapping) and isinstance(row.get("fields"), Mapping):
            label, _, model = str(row.get("model")).partition(".")
            if label == "django_celery_beat":
                tables.setdefault(model, {})[str(row.get("pk", f"row {number}"))] = row["fields"]
    return tables


def _entry(row: Row, tables: Mapping[str, Mapping[str, Row]]) -> BeatEntry:
    name, task = str(row.get("name") or "without a name"), str(row.get("task") or "")
    schedule: Any = ""
    try:
        schedule, tz = _schedule(row, tables)
        if not row.get("enabled", True):
            raise CannotCarryOver("it is disabled", "enable it and dump again, or leave it out for good")
        if row.get("one_off") and not isinstance(schedule, datetime):
            raise CannotCarryOver(
                "it runs once, at the next time of its schedule (one_off)",
                "write a job with at(moment) yourself",
            )
        if not task:
            raise CannotCarryOver("it names no task", "give it one, or leave it out")
        start, end = (_moment(row[part]) if row.get(part) else None for part in ("start_time", "expires"))
        args, kwargs = _json(row, "args", list), _json(row, "kwargs", dict)
        return BeatEntry(name, task, schedule, args, kwargs, _options(row), tz=tz, start=start, end=end)
    except CannotCarryOver as problem:
        return BeatEntry(name, task, schedule, problem=problem)


def _schedule(row: Row, tables: Mapping[str, Mapping[str, Row]]) -> tuple[Any, str | None]:
    for kind, read in READERS.items():
        if row.get(kind) is not None:
            found = tables.get(f"{kind}schedule", {}).get(str(row[kind]))
            if found is None:
                raise CannotCarryOver(
                    f"its {kind} schedule is not in the file", "dump all of django_celery_beat, not one table"
                )
            return read(found)
    raise CannotCarryOver("it has no schedule", "give it one and dump again")


def _crontab(row: Row) -> tuple[Crontab, str | None]:
    fields = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
    return Crontab(**{field: str(row.get(field, "*")) for field in fields}), row.get("timezone")


def _interval(row: Row) -> tuple[timedelta, None]:
    every, period = row.get("every"), PERIODS.get(str(row.get("period")))
    if not isinstance(every, int) or period is None or not 0 < every < 10**9:
        raise CannotCarryOver(f"{every!r} {row.get('period')!r} is no interval", "correct it and dump again")
    return every * period, None


def _solar(row: Row) -> tuple[Any, None]:
    raise CannotCarryOver(
        f"it follows the sun ({row.get('event')}), which no trigger here does",
        "let a job at an early fixed time work out the moment and wait until then",
    )


def _clocked(row: Row) -> tuple[datetime, None]:
    return _moment(row.get("clocked_time")), None


READERS: dict[str, Callable[[Row], tuple[Any, str | None]]] = {
    "crontab": _crontab,
    "interval": _interval,
    "solar": _solar,
    "clocked": _clocked,
}


def _moment(text: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise CannotCarryOver(f"{text!r} is no time", "correct it and dump again") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _options(row: Row) -> dict[str, Any]:
    options = {name: row[name] for name in OPTIONS if row.get(name) not in (None, "")}
    if row.get("expire_seconds"):
        options["expires"] = row["expire_seconds"]
    if headers := _json(row, "headers", dict):
        options["headers"] = headers
    return options


def _json(row: Row, name: str, kind: type) -> Any:
    text = row.get(name) or None
    try:
        value = kind() if text is None else json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, kind):
        raise CannotCarryOver(f"its {name} are no JSON {kind.__name__}", "correct them and dump again")
    return value
