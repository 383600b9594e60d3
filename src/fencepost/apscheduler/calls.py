"""What was changed while the application ran: kept in the definition, so that it holds for all processes.

The `args` of a guarded job's definition are empty as long as it is what the code says. Once it was changed they say so,
and what the job calls where that has changed.

Nothing is imported or unpickled for it. A process calls a changed function only if it is of a module whose functions
it has scheduled itself; otherwise it leaves the job to processes that know it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

from apscheduler.util import iscoroutinefunction_partial, obj_to_ref, ref_to_obj

from fencepost.errors import ConfigurationError
from fencepost.model import Job, Json
from fencepost.runs.tasks import Task

if TYPE_CHECKING:
    from fencepost.apscheduler.registry import Guarded, GuardedJobs

CHANGED: dict[str, Json] = {"changed": True}
"""While the application ran. Every process makes that its own: one that starts with the definition of its code does not
undo it."""


def changed_call(job: Any, changes: Mapping[str, Any], before: Mapping[str, Json]) -> dict[str, Json]:
    """The `args` of the definition after these changes; `before`: what they were."""
    call: dict[str, Any] = {}
    if "args" in changes:
        call["args"] = list(changes["args"])
    if "kwargs" in changes:
        call["kwargs"] = dict(changes["kwargs"])
    if not _survives(call):
        raise ConfigurationError(
            f"job {job.id!r} cannot be given these arguments: other processes read them as JSON, which would change "
            "them; use texts, numbers, lists and dictionaries, or keep the job in a shared job store"
        )
    if "func" in changes:
        call["func"] = _reference(job, changes["func"])
    return {**before, **call}


def function_of(guarded: Guarded, definition: Job, registry: GuardedJobs) -> Callable[..., Any] | None:
    """What this process calls for the job as it is defined; None: it does not know that function."""
    reference = definition.args.get("func")
    own: Callable[..., Any] = guarded.job.func
    if reference is None or reference == guarded.job.func_ref:
        return own
    module, _, name = str(reference).partition(":")
    scheduled = {
        each.job.func.__module__ for each in registry.all() if isinstance(each.job.func, FunctionType)
    }
    found = getattr(sys.modules.get(module), name, None) if module in scheduled else None
    return found if isinstance(found, FunctionType) and found.__module__ == module else None


def task_of(guarded: Guarded, function: Callable[..., Any]) -> Task:
    is_async = iscoroutinefunction_partial(function)
    return Task(guarded.name, function, is_async, None, frozenset(), frozenset(), False)


def marked(job: Job) -> Job:
    """As changed while the application ran."""
    return replace(job, args={**job.args, **CHANGED})


def is_marked(job: Job) -> bool:
    return CHANGED.items() <= job.args.items()


def merged(base: Job, mine: Job, theirs: Job) -> Job:
    """Their definition with what I have changed. Other attributes may have been changed by other processes."""
    changed = {
        field.name: value
        for field in fields(Job)
        if (value := getattr(mine, field.name)) != getattr(base, field.name)
    }
    args = {name: value for name, value in mine.args.items() if base.args.get(name) != value}
    return replace(theirs, **{**changed, "args": {**theirs.args, **args}})


def _survives(value: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError):
        return False


def _reference(job: Any, function: Any) -> str:
    try:
        reference: str = function if isinstance(function, str) else obj_to_ref(function)
        ref_to_obj(reference)
    except (ValueError, LookupError, TypeError) as problem:
        raise ConfigurationError(
            f"job {job.id!r} cannot be given the function {function!r}: other processes could not know it by a name "
            f"({problem}); define it at the top of a module"
        ) from None
    return reference
