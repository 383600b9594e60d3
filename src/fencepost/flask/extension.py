"""The extension: jobs declared on it, a scheduler for each application that it is initialised with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from flask import Blueprint, Flask, current_app, has_app_context

from fencepost.errors import ConfigurationError, UsageError
from fencepost.flask.bodies import in_context
from fencepost.flask.commands import command
from fencepost.flask.service import service_blueprint
from fencepost.flask.taking_part import FlaskStarter, takes_part
from fencepost.runs.resources import Resource
from fencepost.scheduler.scheduler import Scheduler
from fencepost.scheduler.sync import SyncScheduler

F = TypeVar("F", bound=Callable[..., Any])

NAME = "fencepost"
PREFIX = "FENCEPOST_"
NOT_SETTINGS = frozenset({"FENCEPOST_START"})
Declaration = Callable[[Flask, Scheduler], None]


class Fencepost:
    def __init__(
        self, app: Flask | None = None, *, resources: Mapping[str, Resource] | None = None, **settings: Any
    ) -> None:
        """`settings` are those of `Scheduler`; without them `app.config` (`FENCEPOST_STORE` and so on), then the
        environment decides. `FENCEPOST_START = False` in the configuration: this application never takes part."""
        self._settings = settings
        self._resources = resources
        self._declarations: list[Declaration] = []
        self._latest: Flask | None = None
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Jobs may be declared before and after. Several applications each have a scheduler of their own."""
        if NAME in app.extensions:
            raise UsageError("this application has a Fencepost already; declare all jobs on that one")
        settings = {**_configured(app), **self._settings}
        scheduler = Scheduler(resources=self._resources, **settings)
        app.extensions[NAME] = scheduler
        self._latest = app
        for declare in self._declarations:
            declare(app, scheduler)
        app.cli.add_command(command)
        if takes_part(app):
            FlaskStarter(app, scheduler).arrange()

    def job(self, trigger: Any, *, executor: str | None = None, **options: Any) -> Callable[[F], F]:
        """`Scheduler.job`, run in an application context. A process of its own (`executor="process"`) has none."""

        def declare(function: F) -> F:
            def on(app: Flask, scheduler: Scheduler) -> None:
                body = function if executor else in_context(app, function)
                scheduler.job(trigger, executor=executor, **options)(body)

            self._declare(on)
            return function

        return declare

    @overload
    def task(self, function: F) -> F: ...

    @overload
    def task(self, *, id: str | None = None, executor: str | None = None) -> Callable[[F], F]: ...

    def task(self, function: Any = None, *, id: str | None = None, executor: str | None = None) -> Any:
        """`Scheduler.task`, run in an application context."""

        def declare(function: F) -> F:
            def on(app: Flask, scheduler: Scheduler) -> None:
                body = function if executor else in_context(app, function)
                scheduler.task(body, id=id, executor=executor)

            self._declare(on)
            return function

        return declare if function is None else declare(function)

    def command(self, *args: Any, **options: Any) -> None:
        """`Scheduler.command`"""
        self._declare(lambda app, scheduler: scheduler.command(*args, **options))

    def on(self, *kinds: str) -> Callable[[F], F]:
        """`Scheduler.on`, called in an application context."""

        def declare(function: F) -> F:
            def on(app: Flask, scheduler: Scheduler) -> None:
                scheduler.on(*kinds)(_handler(app, function))

            self._declare(on)
            return function

        return declare

    @property
    def scheduler(self) -> Scheduler:
        """Of the current application; outside of any, of the one that was initialised last."""
        app = current_app if has_app_context() and NAME in current_app.extensions else self._latest
        if app is None:
            raise UsageError("call init_app(app) first")
        found: Scheduler = app.extensions[NAME]
        return found

    @property
    def sync(self) -> SyncScheduler:
        """`trigger`, `pause`, `find_fires` and all other operations, for views: `fencepost.sync.trigger(report)`"""
        return self.scheduler.sync

    def blueprint(self, name: str = NAME, *, authorize: Callable[[Any], Any] | None = None) -> Blueprint:
        """API, probes, metrics and dashboard: `app.register_blueprint(fencepost.blueprint(), url_prefix="/fencepost")`.
        `authorize` gets Flask's request and says who asks (docs/flask.md); without it the tokens of the settings do."""
        return service_blueprint(name, authorize)

    def _declare(self, declaration: Declaration) -> None:
        self._declarations.append(declaration)
        if self._latest is not None:
            declaration(self._latest, self._latest.extensions[NAME])


def scheduler_of_app() -> Scheduler:
    found = current_app.extensions.get(NAME)
    if not isinstance(found, Scheduler):
        raise ConfigurationError("this application has no Fencepost: Fencepost(app), or init_app(app)")
    return found


def _configured(app: Flask) -> dict[str, Any]:
    return {
        key.removeprefix(PREFIX).lower(): value
        for key, value in app.config.items()
        if key.startswith(PREFIX) and key not in NOT_SETTINGS and value is not None
    }


def _handler(app: Flask, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(event: Any) -> Any:
        with app.app_context():
            return function(event)

    return call
