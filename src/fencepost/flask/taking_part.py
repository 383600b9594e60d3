"""Which processes that load the application take part, and when they begin.

Those that serve it do: a server's worker, `flask run`, `python app.py`. Other commands of `flask`, tests, the command
line of Fencepost and the parent of the reloader load it as well, and take no part. A job may use anything that the
application defines, so nothing starts before it is loaded.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from importlib.machinery import ModuleSpec
from types import FrameType
from typing import Any

import click
from flask import Flask
from flask.cli import ScriptInfo
from flask.helpers import get_debug_flag

from fencepost.errors import FencepostError
from fencepost.runs.importing import is_importing
from fencepost.scheduler import prefork
from fencepost.scheduler.scheduler import Scheduler

log = logging.getLogger("fencepost")

DRAIN_AT_RELOAD = timedelta(seconds=2)
"""The longest that `flask run --debug` waits for runs before it loads the edited code."""
LOADED_WITHIN = 60.0
"""Seconds after which an application that is still being loaded is started all the same."""
SETTLED = 0.2
"""Seconds for a function that makes the application to return."""
CHECK_EVERY = 0.02


def takes_part(app: Flask) -> bool:
    """Whether this process shall run jobs, unless `FENCEPOST_START` says it."""
    asked = app.config.get("FENCEPOST_START")
    if asked is not None:
        return bool(asked)
    if app.testing or is_importing():
        return False
    command = click.get_current_context(silent=True)
    if command is None or command.find_object(ScriptInfo) is None:
        return True
    if command.info_name != "run":
        return False
    reloads = command.params.get("reload")
    return is_reloaded() or not (get_debug_flag() if reloads is None else reloads)


class FlaskStarter:
    """Of one application in one process."""

    def __init__(self, app: Flask, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._started = False
        self._app = app

    def arrange(self) -> None:
        """Start when the application is loaded, or at its first request, whichever is earlier."""
        self._app.before_request(self._at_request)
        if prefork.is_master():
            self.start()  # which waits for the workers
        elif (worker := prefork.worker()) is not None:
            prefork.before_run(worker, self.start)
        elif self._app.import_name == "__main__":
            _before_call(self._app, self.start)
        else:
            modules = _being_imported()
            threading.Thread(
                target=self._when_loaded, args=(modules,), name="fencepost-start", daemon=True
            ).start()

    def start(self) -> None:
        """Once. A failure is logged: the site is served all the same."""
        with self._lock:
            if self._started:
                return
            self._started = True
        if is_reloaded():
            drain = min(self._scheduler.settings.drain_timeout, DRAIN_AT_RELOAD)
            self._scheduler.settings = replace(self._scheduler.settings, drain_timeout=drain)
        try:
            self._scheduler.start_in_background()
        except FencepostError as error:
            log.error("this process runs no jobs: %s", error)

    def _at_request(self) -> None:
        """Also in a child of a server that forks after it has loaded the application."""
        if not self._started:
            self.start()
        self._scheduler.start_if_forked()

    def _when_loaded(self, modules: list[ModuleSpec]) -> None:
        wait = threading.Event()
        for _ in range(round(LOADED_WITHIN / CHECK_EVERY)):
            if not any(getattr(spec, "_initializing", False) for spec in modules):
                break
            wait.wait(CHECK_EVERY)
        wait.wait(SETTLED)
        self.start()


def is_reloaded() -> bool:
    """Whether this is the child of Werkzeug's reloader, which ends as soon as code is edited."""
    return os.environ.get("WERKZEUG_RUN_MAIN") == "true"


def _before_call(app: Flask, start: Callable[[], None]) -> None:
    """`python app.py`: before `app.run()`, whose parent process only watches files if it reloads."""
    run = app.run

    def start_and_run(
        host: str | None = None,
        port: int | None = None,
        debug: bool | None = None,
        load_dotenv: bool = True,
        **options: Any,
    ) -> None:
        if is_reloaded() or not options.get("use_reloader", app.debug if debug is None else debug):
            start()
        run(host, port, debug, load_dotenv, **options)

    app.run = start_and_run  # type: ignore[method-assign]


def _being_imported() -> list[ModuleSpec]:
    """The modules whose import has led here."""
    found, frame = [], _frame()
    while frame is not None:
        spec = frame.f_globals.get("__spec__") if frame.f_code.co_name == "<module>" else None
        if isinstance(spec, ModuleSpec):
            found.append(spec)
        frame = frame.f_back
    return found


def _frame() -> FrameType | None:
    return sys._getframe(1)
