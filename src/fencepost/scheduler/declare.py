"""From what a user writes to a `Job`: every policy read and checked, with the remedy in the message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model import Job, Overlap
from fencepost.model.job_fields import FIELDS
from fencepost.model.limits import ROW
from fencepost.model.retry import Retry
from fencepost.model.triggers import Trigger, converted
from fencepost.runs.tasks import Task, checked_args
from fencepost.settings import did_you_mean, duration


def declared_job(task: Task | str, id: str, trigger: Any, policies: Mapping[str, Any]) -> Job:
    """`task`: its name, if this process does not know the code and cannot check its arguments. `trigger` None: it runs
    when triggered."""
    for name in policies:
        if name not in _READERS:
            raise ConfigurationError(f"job {id}: there is no {name!r}{did_you_mean(name, _READERS)}")
    if id.startswith(ROW):
        raise ConfigurationError(f"job {id}: ids that begin with {ROW} are taken by limits; use another")
    values = {name: _READERS[name](value) for name, value in policies.items()}
    args = values.get("args")
    check = checked_args if isinstance(task, str) else task.check
    values["args"] = check({} if args is None else args, f"job {id}")
    calendar, within = None if trigger is None else as_trigger(trigger).bound(id), values.pop("spread", None)
    if within is not None and calendar is not None:
        calendar = calendar.spread(within, id)
    return Job(id=id, target=task if isinstance(task, str) else task.name, trigger=calendar, **values)


def default_policies(task: Task) -> dict[str, Any]:
    """What the task itself proposes, as a pipeline does."""
    policies = dict(getattr(task.function, "default_policies", {}))
    if task.engine is not None:
        policies |= {"engine": task.engine, "engine_options": task.engine_options}
    return policies


def as_trigger(given: Any) -> Trigger:
    """Ours as it is; that of a library with an integration, such as APScheduler, converted."""
    if isinstance(given, Trigger):
        return given
    if (trigger := converted(given)) is not None:
        return trigger
    raise ConfigurationError(
        f"{given!r} is not a trigger; use every(minutes=5), cron('30 2 * * *', tz='Europe/Zurich') or at(…)"
    )


def _retry(given: Any) -> Retry | None:
    if given is None or isinstance(given, Retry):
        return given
    raise ConfigurationError(f"retry={given!r}: pass Retry(attempts=…, first=…, cap=…)")


def _as_is(given: Any) -> Any:
    return given


_READERS: dict[str, Callable[[Any], Any]] = {
    "args": _as_is,
    "overlap": Overlap.parse,
    "misfire": _as_is,
    "misfire_after": duration,
    "retry": _retry,
    "timeout": lambda given: None if given is None else duration(given),
    "after_crash": _as_is,
    "crash_attempts": _as_is,
    "execute_on": _as_is,
    "engine": _as_is,
    "engine_options": _as_is,
    "spread": lambda given: None if given is None else duration(given),
    **{name: field.read for name, field in FIELDS.items()},
}
"""By policy: how what a user wrote is read."""
POLICIES = tuple(_READERS)
