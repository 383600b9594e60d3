"""`@every`, `@cron` and `@at`, above a function or a task of `django.tasks`.

What the trigger does not take is for the job: `@every(minutes=5, overlap="queue", args={"region": "ch"})`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings as project

from fencepost.model import triggers

Target = TypeVar("Target")


@dataclass(frozen=True)
class Declaration:
    """A trigger and the policies of a job, which are still to be put above something."""

    trigger: triggers.Trigger
    policies: Mapping[str, Any]

    def __call__(self, target: Target) -> Target:
        from fencepost.django.project import project_scheduler

        declare: Any = project_scheduler().job(self.trigger, **self.policies)
        declare(target)
        return target


def every(interval: timedelta | None = None, **options: Any) -> Declaration:
    """`@every(minutes=5)`, with what `fencepost.every` takes and the policies of `scheduler.job`."""
    return _declaration(triggers.every, (interval,), options)


def cron(expression: str, tz: Any = None, **options: Any) -> Declaration:
    """`@cron("0 3 * * *")`, in the project's `TIME_ZONE` unless `tz` names another."""
    zone = project.TIME_ZONE if tz is None else tz
    return _declaration(triggers.cron, (expression, zone), options)


def at(*moments: datetime, **options: Any) -> Declaration:
    """`@at(datetime(2026, 12, 24, 18, tzinfo=ZoneInfo("Europe/Zurich")))`"""
    return _declaration(triggers.at, moments, options)


def _declaration(
    make: Callable[..., triggers.Trigger], values: tuple[Any, ...], options: Mapping[str, Any]
) -> Declaration:
    own = inspect.signature(make).parameters
    of_trigger = {name: value for name, value in options.items() if name in own}
    policies = {name: value for name, value in options.items() if name not in own}
    return Declaration(make(*values, **of_trigger), policies)
