"""The scheduler of a project: whatever is declared with it runs with Django's connections in order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fencepost.django.bodies import body_of
from fencepost.django.declare import Declaration
from fencepost.scheduler.scheduler import Scheduler

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class ProjectScheduler(Scheduler):
    """`every` and `cron` of `fencepost.django` are taken as triggers, too."""

    drive: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
    """Runs a coroutine to its end, where a test owns the time (`testing.py`)."""

    def ask_blocking(self, work: Coroutine[Any, Any, T], patience: float | None = None) -> T:
        if self.drive is not None:
            return self.drive(work)  # type: ignore[no-any-return]
        return super().ask_blocking(work, patience)

    def job(self, trigger: Any, **policies: Any) -> Callable[[F], F]:
        trigger, policies = _plain(trigger, policies)
        declare = super().job(trigger, **policies)

        def above(target: F) -> F:
            declare(body_of(target))
            return target

        return above

    def task(self, function: Any = None, **options: Any) -> Any:
        if function is None:
            return lambda decorated: self.task(decorated, **options)
        super().task(body_of(function), **options)
        return function

    async def do_add(self, what: Any, trigger: Any, **policies: Any) -> None:
        trigger, policies = _plain(trigger, policies)
        await super().do_add(what, trigger, **policies)


def _plain(trigger: Any, policies: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if isinstance(trigger, Declaration):
        return trigger.trigger, {**trigger.policies, **policies}
    return trigger, policies
