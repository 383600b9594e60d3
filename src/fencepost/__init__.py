"""Fencepost runs every scheduled fire once, on any number of replicas, on the store you already have."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fencepost import _fork

if TYPE_CHECKING:
    from fencepost._version import __version__
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
    from fencepost.events import Event
    from fencepost.fire import Fire, current_fire
    from fencepost.gate import SingleInstance
    from fencepost.handle import Handle
    from fencepost.insight.jobs import JobView
    from fencepost.insight.why import Answer
    from fencepost.model import FireRecord, State
    from fencepost.pipeline import Pipeline, Source
    from fencepost.retry import Retry
    from fencepost.scheduler import Scheduler
    from fencepost.settings import Settings
    from fencepost.triggers import Trigger, at, cron, every

__all__ = [
    "AnotherRunIsActive",
    "Answer",
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
    "at",
    "cron",
    "current_fire",
    "every",
]

_WHERE = {
    "__version__": "_version",
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
    "Event": "events",
    "Fire": "fire",
    "current_fire": "fire",
    "SingleInstance": "gate",
    "Handle": "handle",
    "Answer": "insight.why",
    "FireRecord": "model",
    "JobView": "insight.jobs",
    "State": "model",
    "Pipeline": "pipeline",
    "Source": "pipeline",
    "Retry": "retry",
    "Scheduler": "scheduler",
    "Settings": "settings",
    "Trigger": "triggers",
    "at": "triggers",
    "cron": "triggers",
    "every": "triggers",
}

_fork.wait_for_imports()


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
