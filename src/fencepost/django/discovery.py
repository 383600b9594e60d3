"""The `jobs.py` of every installed app. One that cannot be imported stops none of the others."""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from fencepost.django.project import project_scheduler
from fencepost.errors import ConfigurationError
from fencepost.runs.importing import refusing_starts

log = logging.getLogger("fencepost")

MODULE = "jobs"


@dataclass(frozen=True)
class ImportFailure:
    module: str
    error: str
    """In one line, with its place."""


failures: list[ImportFailure] = []
"""The modules that could not be imported: their jobs are not known here."""


def discover() -> None:
    """Import every app's jobs. Settings that cannot be used are found by `manage.py check`, and by whatever needs the
    scheduler: they must not keep `manage.py` from starting."""
    failures.clear()
    try:
        project_scheduler()
    except ConfigurationError as error:
        log.error("no jobs: %s", error)
        return
    for app in apps.get_app_configs():
        if module_has_submodule(app.module, MODULE):
            _import_jobs(f"{app.name}.{MODULE}")


def _import_jobs(module: str) -> None:
    try:
        with refusing_starts(module):
            import_module(module)
    except Exception as error:
        _withdraw_jobs(module)
        failure = ImportFailure(module, _in_one_line(error))
        failures.append(failure)
        log.error("the jobs of %s are not known: it cannot be imported: %s", module, failure.error)


def _withdraw_jobs(module: str) -> None:
    """Those declared before the line that failed: half of a module must not run."""
    scheduler = project_scheduler()
    ids = [id for id in scheduler.jobs if getattr(scheduler.function_of(id), "__module__", "") == module]
    scheduler.declared.withdraw(ids)


def _in_one_line(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text} ({Path(last.filename).name}, line {last.lineno})"
