"""APScheduler's jobs (3.x): of a scheduler that the user names, which is imported, or of a source file, read only."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from fencepost.cli.migrate.apscheduler_cron import Schedule, triggers_of
from fencepost.cli.migrate.apscheduler_source import KINDS, FoundJob, SourceReader, plain
from fencepost.cli.migrate.source import parsed
from fencepost.cli.migrate.values import (
    LONGEST_SECONDS,
    MOST_ENTRIES,
    CannotCarryOver,
    Carried,
    FunctionCall,
    Imported,
    JobIds,
    NotCarriedOver,
    Note,
)
from fencepost.errors import ConfigurationError, UsageError

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


def read_scheduler(scheduler: Any, target: str, tz: str | None) -> Imported:
    if not hasattr(scheduler, "get_jobs") or not hasattr(scheduler, "add_job"):
        raise UsageError(
            f"{target} is a {type(scheduler).__name__}, not an APScheduler 3.x; name the scheduler"
        )
    return _imported(_of_job(job, tz) for job in scheduler.get_jobs())


def read_source(text: str, module_name: str, tz: str) -> Imported:
    """A module with `scheduler.add_job(…)` and `@scheduler.scheduled_job(…)`."""
    return _imported(SourceReader(parsed(text), module_name, tz).jobs())


def _imported(found: Iterable[FoundJob]) -> Imported:
    names = JobIds()
    jobs, left_out = list[Carried](), list[NotCarriedOver]()
    for job in found:
        if len(jobs) + len(left_out) >= MOST_ENTRIES:
            raise ConfigurationError(f"there are more than {MOST_ENTRIES} jobs; import them in parts")
        try:
            if job.problem:
                raise job.problem
            jobs.append(_carried(job, names))
        except CannotCarryOver as problem:
            left_out.append(NotCarriedOver(job.where, str(job.schedule)[:80], problem.why, problem.remedy))
        except (ConfigurationError, TypeError) as error:
            why, _, remedy = str(error).partition("; ")
            left_out.append(
                NotCarriedOver(
                    job.where, str(job.schedule)[:80], why, remedy or "correct it and import again"
                )
            )
    return Imported(tuple(jobs), tuple(left_out), ALWAYS)


def _carried(job: FoundJob, names: JobIds) -> Carried:
    old, trigger, notes = triggers_of(job.schedule, job.tz)
    if not isinstance(job.args or (), list | tuple) or not isinstance(job.kwargs or {}, Mapping):
        raise CannotCarryOver(
            "its args are no list, or its kwargs no dictionary", "write them so in the file"
        )
    args, kwargs = list(job.args or ()), dict(job.kwargs or {})
    if not all(map(plain, [*args, *kwargs.values()])):
        raise CannotCarryOver("its arguments are no plain values", "make them inside of the function")
    if not all(part.isidentifier() for part in f"{job.module}.{job.function}".split(".")):
        raise CannotCarryOver("its function cannot be imported by a name", "move it to the top of a module")
    policies = _policies(job.options)
    body = FunctionCall(job.module, job.function, args, kwargs, job.is_async)
    id = names.id_for(str(job.options.get("id") or job.function))
    return Carried(id, job.where, str(job.schedule), old, trigger, body, job.tz, policies, tuple(notes))


def _policies(options: Mapping[str, Any]) -> dict[str, Any]:
    policies: dict[str, Any] = {}
    instances, grace = options.get("max_instances"), options.get("misfire_grace_time", 1)
    if isinstance(instances, int) and instances > 1:
        policies["overlap"] = f"allow({min(instances, 9999)})"
    if isinstance(grace, int) and grace > 1:
        policies |= {"misfire": "skip", "misfire_after": min(grace, LONGEST_SECONDS)}
    elif grace is None and options.get("coalesce") is False:
        policies["misfire"] = "all"
    return policies


# A scheduler that was imported.


def _of_job(job: Any, tz: str | None) -> FoundJob:
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
        problem = CannotCarryOver("it is paused", "resume it and import again, or leave it out for good")
    is_async = inspect.iscoroutinefunction(job.func)
    return FoundJob(
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
