"""The scheduler of a project: whatever is declared with it runs with Django's connections in order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from fencepost.django.bodies import body_of
from fencepost.django.declare import Declaration
from fencepost.model import Job
from fencepost.runs.tasks import Task
from fencepost.scheduler.declarations import Declarations
from fencepost.scheduler.scheduler import Scheduler

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class ProjectDeclarations(Declarations):
    def job(self, task: Task | str, id: str, trigger: Any, policies: Mapping[str, Any]) -> Job:
        return super().job(task, id, *_unwrapped(trigger, policies))


class ProjectScheduler(Scheduler):
    """`every` and `cron` of `fencepost.django` are taken as triggers, too."""

    declarations_kind = ProjectDeclarations
    drive: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
    """Runs a coroutine to its end, where a test owns the time (`testing.py`)."""

    def ask_blocking(self, work: Coroutine[Any, Any, T], patience: float | None = None) -> T:
        if self.drive is not None:
            return self.drive(work)  # type: ignore[no-any-return]
        return super().ask_blocking(work, patience)

    def job(self, trigger: Any, **policies: Any) -> Callable[[F], F]:
        declared, options = _unwrapped(trigger, policies)
        declare = super().job(declared, **options)

        def above(target: F) -> F:
            declare(body_of(target))
            return target

        return above

    def task(self, function: Any = None, **options: Any) -> Any:
        if function is None:
            return lambda decorated: self.task(decorated, **options)
        super().task(body_of(function), **options)
        return function


def _unwrapped(trigger: Any, policies: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    if isinstance(trigger, Declaration):
        return trigger.trigger, {**trigger.policies, **policies}
    return trigger, policies
