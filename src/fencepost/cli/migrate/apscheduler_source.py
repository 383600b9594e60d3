"""APScheduler's jobs in Python source, which is read and not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fencepost.cli.migrate.apscheduler_cron import Schedule
from fencepost.cli.migrate.source import Called, Reference, constants, literal
from fencepost.cli.migrate.values import CannotCarryOver

KINDS = {"CronTrigger": "cron", "IntervalTrigger": "interval", "DateTrigger": "date"}
ADD_JOB = (
    "func",
    "trigger",
    "args",
    "kwargs",
    "id",
    "name",
    "misfire_grace_time",
    "coalesce",
    "max_instances",
)
DECORATOR = ("trigger", "args", "kwargs", "id", "name", "misfire_grace_time", "coalesce", "max_instances")
OTHERS = ("next_run_time", "jobstore", "executor", "replace_existing")


@dataclass(frozen=True)
class FoundJob:
    """A job as it was found."""

    where: str
    module: str
    function: str
    schedule: Schedule
    tz: str
    is_async: bool = False
    args: Any = ()
    kwargs: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)
    problem: CannotCarryOver | None = None


def plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and plain(item) for key, item in value.items())
    return value is None or isinstance(value, str | int | float | bool)


class SourceReader:
    """Finds `add_job(…)` and `@….scheduled_job(…)` in a parsed module."""

    def __init__(self, module: ast.Module, name: str, tz: str) -> None:
        self.module = module
        self.known = constants(module)
        self.tz = self._default_zone() or tz
        self.functions = dict(self._functions(name))
        self.coroutines = {node.name for node in ast.walk(module) if isinstance(node, ast.AsyncFunctionDef)}

    def jobs(self) -> Iterator[FoundJob]:
        for node in ast.walk(self.module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    if self._is(decorator, "scheduled_job"):
                        yield self._job(decorator, DECORATOR, node.name)
            elif self._is(node, "add_job"):
                yield self._job(node, ADD_JOB, None)

    @staticmethod
    def _is(node: ast.AST, method: str) -> bool:
        return (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
        )

    def _job(self, node: Any, positions: tuple[str, ...], function: str | None) -> FoundJob:
        where = f"line {node.lineno}"
        try:
            call = literal(node, self.known)
            given = {**dict(zip(positions, call.args, strict=False)), **call.kwargs}
            named = function or _function_name(given.pop("func", None))
            schedule, tz = self._schedule(given)
            module, inner = self._place(named)
        except CannotCarryOver as problem:
            return FoundJob(where, "", "", Schedule(ast.unparse(node)[:60]), "UTC", problem=problem)
        args, kwargs = given.get("args"), given.get("kwargs")
        return FoundJob(where, module, inner, schedule, tz, named in self.coroutines, args, kwargs, given)

    def _schedule(self, given: dict[str, Any]) -> tuple[Schedule, str]:
        """Takes what belongs to the trigger out of the arguments of `add_job`."""
        trigger = given.pop("trigger", "date")
        if isinstance(trigger, str):
            of_trigger = {name: given.pop(name) for name in list(given) if name not in (*ADD_JOB, *OTHERS)}
            called = Called(trigger, (), of_trigger)
        elif isinstance(trigger, Called):
            called = trigger
        else:
            raise CannotCarryOver("its trigger is computed, and the file is read without running it", MODULE)
        kind = KINDS.get(called.name.rpartition(".")[2], called.name)
        values = dict(called.kwargs)
        tz = values.pop("timezone", None)
        if called.name.endswith("CronTrigger.from_crontab") and len(called.args) == 1:
            names = ("minute", "hour", "day", "month", "day_of_week")
            kind, values = "cron", dict(zip(names, str(called.args[0]).split(), strict=False))
        elif kind == "date" and len(called.args) == 1:
            values["run_date"] = called.args[0]
        elif called.args:
            raise CannotCarryOver(
                "its trigger has arguments without names", "write them as hour=2, minute=30"
            )
        if not all(plain(value) or hasattr(value, "year") for value in values.values()):
            raise CannotCarryOver("its trigger has values that are computed", MODULE)
        if kind == "date" and "run_date" not in values:
            raise CannotCarryOver(
                "it runs once, when it is added", "call scheduler.trigger() where it is to run"
            )
        return Schedule(kind, values), self._zone(tz) or self.tz

    def _zone(self, value: Any) -> str | None:
        """`"Europe/Zurich"`, `ZoneInfo("Europe/Zurich")`, `pytz.timezone("Europe/Zurich")`, `utc`."""
        if isinstance(value, Called) and len(value.args) == 1:
            value = value.args[0]
        if isinstance(value, Reference) and value.name.lower().rpartition(".")[2] == "utc":
            return "UTC"
        if value is not None and not isinstance(value, str):
            raise CannotCarryOver("its time zone is computed", 'write its name, as timezone="Europe/Zurich"')
        return value

    def _default_zone(self) -> str | None:
        for node in ast.walk(self.module):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Scheduler"):
                for word in node.keywords:
                    if word.arg == "timezone":
                        with suppress(CannotCarryOver):  # computed: --tz, or the machine's
                            return self._zone(literal(word.value, self.known))
        return None

    def _functions(self, name: str) -> Iterator[tuple[str, tuple[str, str]]]:
        """The names of functions here, and where they can be imported from."""
        for node in self.module.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, (name, node.name)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    yield alias.asname or alias.name, (node.module, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.asname or alias.name, (alias.name, "")

    def _place(self, name: str) -> tuple[str, str]:
        if ":" in name:  # add_job("module:function", …)
            module, _, function = name.partition(":")
            return module, function
        first, dot, rest = name.rpartition(".")
        found = self.functions.get(first if dot else name)
        if found is None or (dot and found[1]):
            raise CannotCarryOver(
                f"{name} is not a function at the top of the file or imported by it",
                "move it there, or " + MODULE,
            )
        return (found[0], rest) if dot else found


MODULE = "name module:attribute instead of the file, which imports it"


def _function_name(value: Any) -> str:
    if isinstance(value, Reference):
        return value.name
    if isinstance(value, str) and ":" in value:
        return value
    raise CannotCarryOver("its function is no name", "move it to the top of a module")
