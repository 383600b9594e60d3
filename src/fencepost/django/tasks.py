"""A task of `django.tasks` (Django 6), or of the `django-tasks` package, as what a fire runs: the fire enqueues it.

Nothing is imported from either: a task is told by what it can do. The result's id is kept with the fire. A task that
takes a parameter `fire_key` gets the fire's key, for use as an idempotency key.
"""

from __future__ import annotations

import copy
import inspect
import uuid
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from django.db import IntegrityError

from fencepost.errors import ConfigurationError
from fencepost.runs.fire import Fire

KEY_PARAMETER = "fire_key"
NAMES_OF_RESULTS = uuid.UUID("5b6d1f6e-4a3c-5c5e-9d53-0f5f3b7f9a21")
"""The namespace of the ids that are derived from fires. Never changed: equal keys must give equal ids."""


def is_task(target: Any) -> bool:
    return all(hasattr(target, name) for name in ("func", "enqueue", "get_backend", "module_path"))


def enqueuing(task: Any) -> Callable[..., Any]:
    """The function that enqueues it, with the parameters of the task's own."""
    parameters = inspect.signature(task.func).parameters
    if "fire" in parameters:
        raise ConfigurationError(
            f"task {task.name}: a task runs in another process, where there is no fire; take `{KEY_PARAMETER}`, its key"
        )

    def enqueue(fire: Fire, **arguments: Any) -> dict[str, str]:
        if KEY_PARAMETER in parameters:
            arguments[KEY_PARAMETER] = fire.effect_key
        result = _enqueued_once(task, fire, arguments)
        return {"task": task.module_path, "backend": task.backend, "result": str(result.id)}

    update_wrapper(enqueue, task.func)
    own: Any = enqueue
    own.__signature__ = _signature(task)
    if _takes_ids(task.get_backend()):
        own.default_policies = {"after_crash": "rerun"}
    return enqueue


def _signature(task: Any) -> inspect.Signature:
    """What a job's `args` may hold: neither the context, which the backend gives, nor the key."""
    given = {KEY_PARAMETER, *(("context",) if task.takes_context else ())}
    own = inspect.signature(task.func).parameters.values()
    fire = inspect.Parameter("fire", inspect.Parameter.KEYWORD_ONLY)
    taken = [each.replace(kind=_by_name(each)) for each in own if each.name not in given]
    return inspect.Signature([fire, *sorted(taken, key=lambda each: each.kind)])


def _by_name(parameter: inspect.Parameter) -> Any:
    if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return inspect.Parameter.KEYWORD_ONLY
    return parameter.kind


def _takes_ids(backend: Any) -> bool:
    """The database backend of django-tasks-db makes ids by a function, unless the project chose one of its own."""
    return hasattr(backend, "id_function") and not backend.options.get("id_function")


def _enqueued_once(task: Any, fire: Fire, arguments: dict[str, Any]) -> Any:
    """Where the backend takes an id, it is derived from the fire: an attempt that repeats one which was cut off behind
    the insert finds its row, and adds none."""
    backend = task.get_backend()
    if not _takes_ids(backend):
        return task.enqueue(**arguments)
    from fencepost.django.project import project_scheduler  # which knows what a task is

    id = result_id(project_scheduler().settings.namespace, fire.effect_key)
    found = _result(backend, id)
    if found is not None:
        return found
    with_id = copy.copy(backend)
    with_id.id_function = partial(_same, id)
    try:
        return with_id.enqueue(task, (), arguments)
    except IntegrityError:
        return backend.get_result(str(id))  # another attempt was quicker


def result_id(namespace: str, key: str) -> uuid.UUID:
    """Of the task that this fire enqueues."""
    return uuid.uuid5(NAMES_OF_RESULTS, f"{namespace}/{key}")


def _result(backend: Any, id: uuid.UUID) -> Any | None:
    try:
        return backend.get_result(str(id))
    except Exception as error:
        if type(error).__name__.endswith("DoesNotExist"):  # its class is of Django or of a package
            return None
        raise


def _same(id: uuid.UUID) -> uuid.UUID:
    return id
