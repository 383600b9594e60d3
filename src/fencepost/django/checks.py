"""`manage.py check`: what is wrong with the project's set-up, each with the remedy.

Errors keep `migrate` and `runserver` from starting, so only settings that cannot work are errors. A job module that
cannot be imported is a warning: it may need the very migration that is about to run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from django.conf import settings as project
from django.core import checks
from django.db import connections

from fencepost.django import discovery
from fencepost.django.configuration import DjangoSettings, given_settings, ignored_variable
from fencepost.django.project import is_testing, project_scheduler
from fencepost.errors import ConfigurationError
from fencepost.settings import ON_A_SERVER, scheme_of

MIDDLEWARE = "django.contrib.auth.middleware.AuthenticationMiddleware"


def check_project(app_configs: Any = None, **options: Any) -> list[checks.CheckMessage]:
    try:
        settings = project_scheduler().settings
        stored = [] if is_testing() else [*_store(settings, settings.store_url()), *_stores()]
    except ConfigurationError as error:
        return [checks.Error(str(error), id="fencepost.E001")]
    return [*stored, *_modules(), *_dashboard()]


def _store(settings: Any, url: str) -> Iterator[checks.CheckMessage]:
    scheme = scheme_of(url)
    if scheme.startswith("postgres") and find_spec("psycopg") is None:
        yield checks.Error(
            "the store is in PostgreSQL, and psycopg 3 is not installed",
            hint="pip install 'fencepost[postgres]'; Django may go on with psycopg2",
            id="fencepost.E002",
        )
    if scheme == "memory":
        yield checks.Warning(
            "the store is memory://: every process runs every job, and forgets it at its end",
            hint='leave STORE out to use the project\'s database, or name another: FENCEPOST = {"STORE": "default"}',
            id="fencepost.W001",
        )
    if scheme in ("sqlite", "file") and _runs_on_many_machines():
        yield checks.Warning(
            f"the store is a {'SQLite' if scheme == 'sqlite' else ''} file of this machine, and the project's database "
            "is on a server: replicas on other machines would each run every job".replace("  ", " "),
            hint='keep the store in the database as well: FENCEPOST = {"STORE": "default"}',
            id="fencepost.W002",
        )
    if isinstance(settings, DjangoSettings) and settings.database is not None:
        mirror = connections.settings[settings.database].get("TEST", {}).get("MIRROR")
        if mirror:
            yield checks.Warning(
                f"the store is database {settings.database!r}, which seems to be a read replica of {mirror!r}",
                hint=f'Fencepost writes: FENCEPOST = {{"STORE": "{mirror}"}}',
                id="fencepost.W003",
            )


def _runs_on_many_machines() -> bool:
    vendor = connections["default"].vendor if "default" in connections.settings else ""
    return "KUBERNETES_SERVICE_HOST" in os.environ or vendor not in ("sqlite", "unknown", "")


def _stores() -> Iterator[checks.CheckMessage]:
    variable = ignored_variable()
    if variable is not None:
        yield checks.Warning(
            f'two stores are named: FENCEPOST["STORE"] of the settings, which counts here, and {variable}',
            hint="keep one of them: `fencepost status` outside of manage.py looks at the other store",
            id="fencepost.W004",
        )
    if len(connections.settings) > 1 and given_settings().get("store") is None and variable is None:
        if scheme_of(os.environ.get("FENCEPOST_STORE", "")) in ON_A_SERVER:
            return
        others = ", ".join(sorted(set(connections.settings) - {"default"}))
        yield checks.Info(
            f"the project has several databases; the store is 'default' (others: {others})",
            hint='say which: FENCEPOST = {"STORE": "default"}',
            id="fencepost.I001",
        )


def _modules() -> Iterator[checks.CheckMessage]:
    for failure in discovery.failures:
        yield checks.Warning(
            f"{failure.module} cannot be imported, so its jobs are not known and do not run: {failure.error}",
            hint="the jobs of the other apps run",
            obj=failure.module,
            id="fencepost.W005",
        )


def _dashboard() -> Iterator[checks.CheckMessage]:
    """Only where it is mounted: Django's own checks have imported the project's URLs by then."""
    if "fencepost.django.urls" not in sys.modules:
        return
    if MIDDLEWARE not in project.MIDDLEWARE:
        yield checks.Warning(
            "fencepost.django.urls is mounted, and without AuthenticationMiddleware nobody is let in",
            hint=f"add {MIDDLEWARE!r} to MIDDLEWARE, behind the SessionMiddleware",
            id="fencepost.W006",
        )
    if find_spec("starlette") is None:
        yield checks.Error(
            "fencepost.django.urls is mounted, and what it needs is not installed",
            hint="pip install 'fencepost[web]'",
            id="fencepost.E003",
        )
