"""Fencepost runs every scheduled fire once, on any number of replicas, on the store you already have."""

from fencepost._version import __version__
from fencepost.errors import (
    AnotherRunIsActive,
    ConfigurationError,
    EffectCommitted,
    FencedOut,
    FencepostError,
    RunCancelled,
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
