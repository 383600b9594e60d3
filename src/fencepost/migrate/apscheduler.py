"""APScheduler's jobs (3.x): of a scheduler that the user names, which is imported, or of a source file, read only."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost.errors import ConfigurationError, UsageError
from fencepost.migrate.apscheduler_cron import Schedule, triggers_of
from fencepost.migrate.source import Called, Reference, constants, literal, parsed
from fencepost.migrate.values import MOST_ENTRIES, Call, Carried, Imported, LeftOut, Names, Note, Unreadable

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
ALWAYS = (
    Note(
        "clock changes",
        "the fires compared are what the trigger's fields say; APScheduler itself loses some after a change, such as "
        "a monthly one at midnight on 1 April",
        "expect those fires from now on",
    ),
    Note(
        "the running scheduler",
        "while it is up, each job runs twice",
        "remove the jobs there, or keep it and share it between replicas with guard() instead (docs/guard.md)",
    ),
    Note(
        "late fires",
        "APScheduler drops what is later than misfire_grace_time, by default 1 s; Fencepost runs the latest one late",
        'write misfire="skip" to drop it, too',
    ),
)


@dataclass(frozen=True)
class Found:
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
    problem: Unreadable | None = None


def read_scheduler(scheduler: Any, target: str, tz: str | None) -> Imported:
    if not hasattr(scheduler, "get_jobs") or not hasattr(scheduler, "add_job"):
        raise UsageError(
            f"{target} is a {type(scheduler).__name__}, not an APScheduler 3.x; name the scheduler"
        )
    return _imported(_of_job(job, tz) for job in scheduler.get_jobs())


def read_source(text: str, module_name: str, tz: str) -> Imported:
    """A module with `scheduler.add_job(…)` and `@scheduler.scheduled_job(…)`."""
    module = parsed(text)
    return _imported(_Source(module, module_name, tz).jobs())


def _imported(found: Iterable[Found]) -> Imported:
    names = Names()
    jobs, left_out = list[Carried](), list[LeftOut]()
    for job in found:
        if len(jobs) + len(left_out) >= MOST_ENTRIES:
            raise ConfigurationError(f"there are more than {MOST_ENTRIES} jobs; import them in parts")
        try:
            if job.problem:
                raise job.problem
            jobs.append(_carried(job, names))
        except Unreadable as problem:
            left_out.append(LeftOut(job.where, str(job.schedule)[:80], problem.why, problem.remedy))
        except (ConfigurationError, TypeError) as error:
            why, _, remedy = str(error).partition("; ")
            left_out.append(
                LeftOut(job.where, str(job.schedule)[:80], why, remedy or "correct it and import again")
            )
    return Imported(tuple(jobs), tuple(left_out), ALWAYS)


def _carried(job: Found, names: Names) -> Carried:
    old, trigger, notes = triggers_of(job.schedule, job.tz)
    args, kwargs = list(job.args or ()), dict(job.kwargs or {})
    if not all(map(_plain, [*args, *kwargs.values()])):
        raise Unreadable("its arguments are no plain values", "make them inside of the function")
    if not all(part.isidentifier() for part in f"{job.module}.{job.function}".split(".")):
        raise Unreadable("its function cannot be imported by a name", "move it to the top of a module")
    policies = _policies(job.options)
    body = Call(job.module, job.function, args, kwargs, job.is_async)
    id = names.id_for(str(job.options.get("id") or job.function))
    return Carried(id, job.where, str(job.schedule), old, trigger, body, job.tz, policies, tuple(notes))


def _policies(options: Mapping[str, Any]) -> dict[str, Any]:
    policies: dict[str, Any] = {}
    instances, grace = options.get("max_instances"), options.get("misfire_grace_time", 1)
    if isinstance(instances, int) and instances > 1:
        policies["overlap"] = f"allow({instances})"
    if isinstance(grace, int) and grace > 1:
        policies |= {"misfire": "skip", "misfire_after": grace}
    elif grace is None and options.get("coalesce") is False:
        policies["misfire"] = "all"
    return policies


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    return value is None or isinstance(value, str | int | float | bool)


# A scheduler that was imported.


def _of_job(job: Any, tz: str | None) -> Found:
    where = f"job {job.id!r}"
    module, _, function = str(job.func_ref or "").partition(":")
    zone = _zone_name(getattr(job.trigger, "timezone", None)) or tz or "UTC"
    options = {
        name: getattr(job, name)
        for name in ("id", "misfire_grace_time", "coalesce", "max_instances")
        if hasattr(job, name)
    }
    if len(str(options.get("id"))) == 32 and str(options["id"]).isalnum():
        options["id"] = None  # APScheduler made it up
    problem = None
    if hasattr(job, "next_run_time") and job.next_run_time is None:
        problem = Unreadable("it is paused", "resume it and import again, or leave it out for good")
    is_async = inspect.iscoroutinefunction(job.func)
    return Found(
        where,
        module,
        function,
        _of_trigger(job.trigger),
        zone,
        is_async,
        job.args,
        job.kwargs,
        options,
        problem,
    )


def _of_trigger(trigger: Any) -> Schedule:
    """By exact type: a subclass may compute other times."""
    name = type(trigger).__name__
    if not type(trigger).__module__.startswith("apscheduler.triggers.") or name not in KINDS:
        return Schedule(str(trigger))
    given: dict[str, Any] = {"start_date": trigger.start_date} if getattr(trigger, "start_date", None) else {}
    if getattr(trigger, "end_date", None):
        given["end_date"] = trigger.end_date
    if getattr(trigger, "jitter", None):
        given["jitter"] = trigger.jitter
    if name == "CronTrigger":
        given |= {
            field.name: str(field) for field in trigger.fields if str(field) != "*" or field.name == "second"
        }
    elif name == "IntervalTrigger":
        given["seconds"] = trigger.interval.total_seconds()
        if given.get("start_date") is not None and given["start_date"].microsecond:
            del given["start_date"]  # made up from the time of the call
    else:
        given = {"run_date": trigger.run_date}
    return Schedule(KINDS[name], given)


def _zone_name(zone: Any) -> str | None:
    name = getattr(zone, "key", getattr(zone, "zone", None))
    return name if isinstance(name, str) else None


# A source file.


class _Source:
    def __init__(self, module: ast.Module, name: str, tz: str) -> None:
        self.module = module
        self.known = constants(module)
        self.tz = self._default_zone() or tz
        self.functions = dict(self._functions(name))
        self.coroutines = {node.name for node in ast.walk(module) if isinstance(node, ast.AsyncFunctionDef)}

    def jobs(self) -> Iterator[Found]:
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

    def _job(self, node: Any, positions: tuple[str, ...], function: str | None) -> Found:
        where = f"line {node.lineno}"
        try:
            call = literal(node, self.known)
            given = {**dict(zip(positions, call.args, strict=False)), **call.kwargs}
            named = function or _function_name(given.pop("func", None))
            schedule, tz = self._schedule(given)
            module, inner = self._place(named)
        except Unreadable as problem:
            return Found(where, "", "", Schedule(ast.unparse(node)[:60]), "UTC", problem=problem)
        args, kwargs = given.get("args"), given.get("kwargs")
        return Found(where, module, inner, schedule, tz, named in self.coroutines, args, kwargs, given)

    def _schedule(self, given: dict[str, Any]) -> tuple[Schedule, str]:
        """Takes what belongs to the trigger out of the arguments of `add_job`."""
        trigger = given.pop("trigger", "date")
        if isinstance(trigger, str):
            of_trigger = {name: given.pop(name) for name in list(given) if name not in (*ADD_JOB, *OTHERS)}
            called = Called(trigger, (), of_trigger)
        elif isinstance(trigger, Called):
            called = trigger
        else:
            raise Unreadable("its trigger is computed, and the file is read without running it", MODULE)
        kind = KINDS.get(called.name.rpartition(".")[2], called.name)
        values = dict(called.kwargs)
        tz = values.pop("timezone", None)
        if called.name.endswith("CronTrigger.from_crontab") and len(called.args) == 1:
            names = ("minute", "hour", "day", "month", "day_of_week")
            kind, values = "cron", dict(zip(names, str(called.args[0]).split(), strict=False))
        elif kind == "date" and len(called.args) == 1:
            values["run_date"] = called.args[0]
        elif called.args:
            raise Unreadable("its trigger has arguments without names", "write them as hour=2, minute=30")
        if not all(_plain(value) or hasattr(value, "year") for value in values.values()):
            raise Unreadable("its trigger has values that are computed", MODULE)
        if kind == "date" and "run_date" not in values:
            raise Unreadable("it runs once, when it is added", "call scheduler.trigger() where it is to run")
        return Schedule(kind, values), self._zone(tz) or self.tz

    def _zone(self, value: Any) -> str | None:
        """`"Europe/Zurich"`, `ZoneInfo("Europe/Zurich")`, `pytz.timezone("Europe/Zurich")`, `utc`."""
        if isinstance(value, Called) and len(value.args) == 1:
            value = value.args[0]
        if isinstance(value, Reference) and value.name.lower().rpartition(".")[2] == "utc":
            return "UTC"
        if value is not None and not isinstance(value, str):
            raise Unreadable("its time zone is computed", 'write its name, as timezone="Europe/Zurich"')
        return value

    def _default_zone(self) -> str | None:
        for node in ast.walk(self.module):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Scheduler"):
                for word in node.keywords:
                    if word.arg == "timezone":
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
            raise Unreadable(
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
    raise Unreadable("its function is no name", "move it to the top of a module")
