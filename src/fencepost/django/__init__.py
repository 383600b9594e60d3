"""Scheduled jobs of a Django project: `"fencepost.django"` in `INSTALLED_APPS`, and in an app's `jobs.py`:

    from fencepost.django import cron, every

    @every(minutes=5)
    def poll(): ...

    @cron("0 3 * * *")
    def nightly(fire): ...

`manage.py fencepost run` runs them. The guide is docs/django.md.

    configuration.py, databases.py   FENCEPOST of the settings; the project's database as the store
    project.py, discovery.py         the project's one scheduler; the jobs.py of its apps
    declare.py, schedulers.py        the decorators; the scheduler that is the project's
    bodies.py, tasks.py              what a fire runs: a function, or a task that it enqueues
    wsgi.py, asgi.py                 web processes that take part
    views.py, urls.py                API and dashboard, with Django's users and permissions
    apps.py, checks.py, models.py    what Django itself asks an app for
    testing.py                       virtual time inside of a TestCase
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fencepost.django.declare import at, cron, every

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

    scheduler: Scheduler

__all__ = ["at", "cron", "every", "scheduler"]


def __getattr__(name: str) -> Any:
    """`scheduler` is made when it is first asked for: Django imports this package before its settings are complete."""
    if name == "scheduler":
        from fencepost.django.project import project_scheduler

        return project_scheduler()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
