"""Fencepost runs every scheduled fire once, on any number of replicas, on the store you already have."""

from __future__ import annotations

import _frozen_importlib

# Both take a lock before a fork that an import may need. What is registered later is called earlier: ours must be.
import concurrent.futures.thread  # noqa: F401
import importlib
import logging  # noqa: F401
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.errors import (
        AnotherRunIsActive,
        ConfigurationError,
        Conflict,
        EffectCommitted,
        FencedOut,
        FencepostError,
        RunCancelled,
        RunFailed,
        StoreUnavailable,
        UsageError,
    )
    from fencepost.insight.jobs import JobView
    from fencepost.insight.why import Answer
    from fencepost.model import FireRecord, State
    from fencepost.model.limits import limit
    from fencepost.model.retry import Retry
    from fencepost.model.triggers import Calendar, Trigger, at, cron, every, rrule
    from fencepost.pipeline import Pipeline, Source
    from fencepost.runs.events import Event
    from fencepost.runs.fire import Fire, current_fire
    from fencepost.scheduler.after import after
    from fencepost.scheduler.handle import Handle
    from fencepost.scheduler.scheduler import Scheduler
    from fencepost.scheduler.single_instance import SingleInstance
    from fencepost.settings import Settings

__version__ = "0.2.0.dev0"

__all__ = [
    "AnotherRunIsActive",
    "Answer",
    "Calendar",
    "ConfigurationError",
    "Conflict",
    "EffectCommitted",
    "Event",
    "FencedOut",
    "FencepostError",
    "Fire",
    "FireRecord",
    "Handle",
    "JobView",
    "Pipeline",
    "Retry",
    "RunCancelled",
    "RunFailed",
    "Scheduler",
    "Settings",
    "SingleInstance",
    "Source",
    "State",
    "StoreUnavailable",
    "Trigger",
    "UsageError",
    "__version__",
    "after",
    "at",
    "cron",
    "current_fire",
    "every",
    "limit",
    "rrule",
]

_WHERE = {
    "AnotherRunIsActive": "errors",
    "ConfigurationError": "errors",
    "Conflict": "errors",
    "EffectCommitted": "errors",
    "FencedOut": "errors",
    "FencepostError": "errors",
    "RunCancelled": "errors",
    "RunFailed": "errors",
    "StoreUnavailable": "errors",
    "UsageError": "errors",
    "Event": "runs.events",
    "Fire": "runs.fire",
    "current_fire": "runs.fire",
    "SingleInstance": "scheduler.single_instance",
    "Handle": "scheduler.handle",
    "Answer": "insight.why",
    "FireRecord": "model",
    "JobView": "insight.jobs",
    "State": "model",
    "Pipeline": "pipeline",
    "Source": "pipeline",
    "Retry": "model.retry",
    "Scheduler": "scheduler.scheduler",
    "Settings": "settings",
    "Calendar": "model.triggers",
    "Trigger": "model.triggers",
    "at": "model.triggers",
    "cron": "model.triggers",
    "every": "model.triggers",
    "after": "scheduler.after",
    "limit": "model.limits",
    "rrule": "model.triggers",
}


def __getattr__(name: str) -> Any:
    """Found when it is first asked for. If this module imported what it offers, a thread that imports it and one that
    imports a module below it would wait for each other, and Python breaks such a deadlock by handing out a module that
    is not complete."""
    if name in _WHERE:
        value = getattr(importlib.import_module(f"fencepost.{_WHERE[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"fencepost.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"fencepost.{name}":
                raise
    raise AttributeError(f"module 'fencepost' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# --- names of earlier releases: they work once more, and warn ----------------------------------------------

_MOVED = {
    "access": "web.access",
    "audit": "insight.audit",
    "bodies": "runs.bodies",
    "declare": "scheduler.declare",
    "doctor": "insight.doctor",
    "events": "runs.events",
    "failures": "runs.failures",
    "fenced": "runs.fenced",
    "fire": "runs.fire",
    "gate": "scheduler.single_instance",
    "handle": "scheduler.handle",
    "host": "runs.host",
    "jobfile": "scheduler.jobfile",
    "output": "runs.output",
    "resources": "runs.resources",
    "retry": "model.retry",
    "store_url": "settings",
    "tasks": "runs.tasks",
    "triggers": "model.triggers",
    "values": "model.values",
    "views": "insight.views",
    "widget": "web.widget",
}


class _Moved(MetaPathFinder, Loader):
    """Finds `fencepost.triggers` where it is now, and what is below it: the same module, not a second copy."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("fencepost."):
            return None
        _, old, *below = fullname.split(".")
        if old not in _MOVED:
            return None
        return ModuleSpec(fullname, self, origin=".".join(["fencepost", _MOVED[old], *below]))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        assert spec.origin is not None
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        alias, module.__spec__ = module.__spec__, module.__spec__.loader_state  # type: ignore[union-attr]
        assert alias is not None
        _warn(alias.name, alias.origin or "", stacklevel=3)


def moved_names(module: str, *names: str, **renamed: str) -> Callable[[str], Any]:
    """A `__getattr__` for what was a module and is a room now. `renamed`: old names and what they are called now."""
    room = module.rpartition(".")[0]
    today = dict(zip(names, names, strict=True)) | renamed

    def find(name: str) -> Any:
        if name not in today:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        _warn(f"{room}.{name}", f"{module}.{today[name]}", stacklevel=3)
        return getattr(importlib.import_module(module), today[name])

    return find


def _warn(old: str, new: str, stacklevel: int) -> None:
    warnings.warn(
        f"{old} is {new} now; the old name goes with the next release", DeprecationWarning, stacklevel
    )


sys.meta_path.insert(0, _Moved())


# --- forks --------------------------------------------------------------------------------------------------
#
# A forked child has only the thread that forked. A module that another thread was just importing would stay half
# imported there, and its import lock held for ever: code that imports it in the child would wait without end. This
# happens under `gunicorn --preload`, where threads of the application may import while workers are forked. So a fork
# waits until no other thread is importing Fencepost.

_PATIENCE = 10.0
"""Seconds. Longer than any import takes; a fork must not hang because one does."""
_STEP = 0.005


def _until_imported() -> None:
    for _ in range(round(_PATIENCE / _STEP)):
        importing = _importing_threads()
        # A thread that imports and forks meanwhile cannot wait for itself, nor for one that waits for it.
        if not importing or threading.get_ident() in importing:
            return
        time.sleep(_STEP)


def _importing_threads() -> set[int]:
    """Those that hold the import lock of a module of ours. Nothing public tells; where the locks are not found, no
    fork waits."""
    locks = getattr(_frozen_importlib, "_module_locks", {})
    found = (reference() for name, reference in list(locks.items()) if name.startswith("fencepost"))
    owners = {getattr(lock, "owner", None) for lock in found}
    return {owner for owner in owners if owner is not None}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_until_imported)
