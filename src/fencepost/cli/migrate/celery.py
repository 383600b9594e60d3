"""Celery's beat schedule: of an app that the user names, which imports it, or of a source file, which does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from fencepost.cli.migrate.beat import ALWAYS, BeatEntry, Crontab, carried
from fencepost.cli.migrate.source import Called, Reference, constants, literal, parsed
from fencepost.cli.migrate.values import MOST_ENTRIES, CannotCarryOver, Imported, Note
from fencepost.errors import ConfigurationError, UsageError

SCHEDULES = frozenset({"beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE"})
ZONES = frozenset({"timezone", "CELERY_TIMEZONE"})
FIELDS = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
NO_APP = Note(
    "the Celery app",
    "it is not known, so messages go to the current app, which may have no broker",
    "give --app module:attribute",
)


def read_app(app: Any, target: str, tz: str | None) -> Imported:
    """An imported app, with what its signal handlers have added."""
    if not hasattr(app, "conf") or not hasattr(app, "finalize"):
        raise UsageError(f"{target} is a {type(app).__name__}, not a Celery app; name the app")
    app.finalize()
    zone = tz or str(app.timezone)
    schedule = app.conf.beat_schedule or {}
    entries = [_entry(str(name), given, _of_object) for name, given in _bounded(schedule).items()]
    return Imported(*carried(entries, zone, target), ALWAYS)


def read_source(text: str, tz: str | None, app: str | None) -> Imported:
    """A module with `beat_schedule = {…}`, `app.conf.beat_schedule = {…}` or `app.conf.update(beat_schedule={…})`."""
    module = parsed(text)
    known = constants(module)
    schedule: dict[str, Any] = {}
    entries: list[BeatEntry] = []
    zone = tz
    for name, node in _settings(module):
        if name in ZONES and tz is None:
            zone = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else zone
        elif name in SCHEDULES and isinstance(node, ast.Dict):
            schedule |= {_key(key, known): value for key, value in zip(node.keys, node.values, strict=True)}
        elif name in SCHEDULES:
            raise ConfigurationError(
                f"{name} is computed, and the file is read without running it; name module:attribute instead"
            )
    for name, node in _bounded(schedule).items():
        try:
            entries.append(_entry(name, literal(node, known), _of_call))
        except CannotCarryOver as problem:
            entries.append(BeatEntry(name, "", ast.unparse(node)[:60], problem=problem))
    entries += _added_by_code(module)
    notes = ALWAYS if app else (NO_APP, *ALWAYS)
    return Imported(*carried(entries, zone or "UTC", app), notes)


def _settings(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """What the module assigns, or gives to `conf.update(…)`: the last name, and the value."""
    for node in ast.walk(module):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name | ast.Attribute):
                    yield (target.id if isinstance(target, ast.Name) else target.attr), node.value
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update"
        ):
            yield from ((word.arg, word.value) for word in node.keywords if word.arg is not None)


def _added_by_code(module: ast.Module) -> Iterator[BeatEntry]:
    problem = CannotCarryOver(
        "add_periodic_task adds it when the app runs, and the file is read without running it",
        "name module:attribute instead of the file, which imports the app",
    )
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_periodic_task"):
            shown = ast.unparse(node.args[0])[:60] if node.args else ""
            yield BeatEntry(f"line {node.lineno}", "", shown, problem=problem)


def _entry(name: str, given: Any, schedule_of: Any) -> BeatEntry:
    if not isinstance(given, Mapping) or not isinstance(given.get("task"), str):
        return BeatEntry(
            name, "", "", problem=CannotCarryOver("it names no task", 'write "task": "module.function"')
        )
    try:
        schedule = schedule_of(given.get("schedule"))
    except CannotCarryOver as problem:
        return BeatEntry(name, given["task"], given.get("schedule"), problem=problem)
    for part, kind in (("args", list | tuple), ("kwargs", Mapping), ("options", Mapping)):
        if given.get(part) is not None and not isinstance(given[part], kind):
            mixed = CannotCarryOver(
                f"its {part} are not plain values", "write them in the file, or name module:attribute"
            )
            return BeatEntry(name, given["task"], schedule, problem=mixed)
    return BeatEntry(
        name,
        given["task"],
        schedule,
        given.get("args"),
        given.get("kwargs"),
        given.get("options"),
        bool(given.get("relative")),
    )


def _of_object(schedule: Any) -> Any:
    """By exact type: a subclass may compute other times."""
    kind = f"{type(schedule).__module__}.{type(schedule).__name__}"
    if kind == "celery.schedules.crontab":
        if schedule.nowfun is not None:
            raise CannotCarryOver(
                "its crontab has a clock of its own (nowfun)", "remove nowfun, and set the timezone"
            )
        return Crontab(**{field: getattr(schedule, f"_orig_{field}") for field in FIELDS})
    if kind == "celery.schedules.schedule":
        return schedule.run_every
    if kind == "celery.schedules.solar":
        raise _solar(schedule)
    return schedule


def _of_call(schedule: Any) -> Any:
    if not isinstance(schedule, Called):
        if isinstance(schedule, Reference):
            raise CannotCarryOver(
                f"its schedule is {schedule.name}, and the file is read without running it",
                "name module:attribute instead of the file, which imports it",
            )
        return schedule
    name = schedule.name.removeprefix("celery.").removeprefix("schedules.")
    if name == "crontab.from_string" and len(schedule.args) == 1:
        return Crontab.of_text(str(schedule.args[0]))
    positional = dict(zip(FIELDS, schedule.args, strict=False))
    known = set(schedule.kwargs) <= set(FIELDS) - set(positional) and len(schedule.args) <= len(FIELDS)
    if name == "crontab" and known:
        return Crontab(**positional, **schedule.kwargs)
    length = (*schedule.args, schedule.kwargs.get("run_every"))[0]
    if name == "schedule" and isinstance(length, int | float | timedelta):
        return length
    if name == "solar":
        raise _solar(schedule.name)
    raise CannotCarryOver(
        f"{schedule.name}(…) is not known", "use crontab(), schedule(), a timedelta or seconds"
    )


def _solar(shown: Any) -> CannotCarryOver:
    return CannotCarryOver(
        f"{str(shown)[:40]} follows the sun, which no trigger here does",
        "let a job at an early fixed time work out the moment, and wait until then",
    )


def _key(node: ast.expr | None, known: Mapping[str, Any]) -> str:
    if node is None:
        return ""
    try:
        value = literal(node, known)
    except CannotCarryOver:
        value = None
    return value if isinstance(value, str) else ast.unparse(node)[:60]


def _bounded(schedule: Mapping[Any, Any]) -> Mapping[Any, Any]:
    if len(schedule) > MOST_ENTRIES:
        raise ConfigurationError(f"there are more than {MOST_ENTRIES} entries; import them in parts")
    return schedule
