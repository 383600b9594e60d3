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
from fencepost.django.configuration import DEFAULT_ALIAS, given_settings, ignored_variable
from fencepost.django.project import is_testing, project_scheduler
from fencepost.errors import ConfigurationError
from fencepost.settings import scheme_of

MIDDLEWARE = "django.contrib.auth.middleware.AuthenticationMiddleware"
IN_THE_DATABASE = 'FENCEPOST = {"STORE": "default"}'
PATIENT = '"OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"} (the latter from Django 5.1 on)'


def check_project(app_configs: Any = None, **options: Any) -> list[checks.CheckMessage]:
    try:
        settings = project_scheduler().settings
        stored = [] if is_testing() else [*_store(settings.store_url()), *_stores(_alias(settings))]
    except ConfigurationError as error:
        return [checks.Error(str(error), id="fencepost.E001")]
    return [*stored, *_modules(), *_dashboard()]


def check_deployment(app_configs: Any = None, **options: Any) -> list[checks.CheckMessage]:
    """`manage.py check --deploy`"""
    try:
        settings = project_scheduler().settings
        url = settings.store_url()
    except ConfigurationError:
        return []  # `check_project` says so
    return [*_busy_file(url, _alias(settings)), *_transactions()]


def _alias(settings: Any) -> str | None:
    """Of the database that is the store; None: it has a URL of its own."""
    return settings.database if settings.store is None else None


def _store(url: str) -> Iterator[checks.CheckMessage]:
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
            hint=f"leave STORE out, or keep the store in the project's database: {IN_THE_DATABASE}",
            id="fencepost.W001",
        )
    if scheme in ("sqlite", "file") and _has_many_machines():
        yield checks.Warning(
            "the store is on the disk of one machine, and the project may run on several: those would each run every "
            "job",
            hint=f"keep the store on a server, as in {IN_THE_DATABASE} with PostgreSQL",
            id="fencepost.W002",
        )


def _has_many_machines() -> bool:
    vendor = connections[DEFAULT_ALIAS].vendor if DEFAULT_ALIAS in connections.settings else "unknown"
    return "KUBERNETES_SERVICE_HOST" in os.environ or vendor not in ("sqlite", "unknown")


def _stores(alias: str | None) -> Iterator[checks.CheckMessage]:
    if alias is not None and (mirror := connections.settings[alias].get("TEST", {}).get("MIRROR")):
        yield checks.Warning(
            f"the store is database {alias!r}, which seems to be a read replica of {mirror!r}",
            hint=f'Fencepost writes: FENCEPOST = {{"STORE": "{mirror}"}}',
            id="fencepost.W003",
        )
    if (variable := ignored_variable()) is not None:
        yield checks.Warning(
            f'two stores are named: FENCEPOST["STORE"] of the settings, which counts here, and {variable}',
            hint="keep one of them: `fencepost status` outside of manage.py looks at the other store",
            id="fencepost.W004",
        )
    if alias is not None and len(connections.settings) > 1 and given_settings().get("store") is None:
        yield checks.Info(
            f"the project has several databases; the store is {alias!r}",
            hint=f"say which: {IN_THE_DATABASE}",
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
    if "fencepost.django.urls" in sys.modules and MIDDLEWARE not in project.MIDDLEWARE:
        yield checks.Warning(
            "fencepost.django.urls is mounted, and without AuthenticationMiddleware nobody is let in",
            hint=f"add {MIDDLEWARE!r} to MIDDLEWARE, behind the SessionMiddleware",
            id="fencepost.W006",
        )


def _busy_file(url: str, alias: str | None) -> Iterator[checks.CheckMessage]:
    if alias is None or scheme_of(url) != "sqlite":
        return
    options = connections.settings[alias].get("OPTIONS", {})
    if options.get("timeout", 5) < 20 or options.get("transaction_mode", "IMMEDIATE") != "IMMEDIATE":
        yield checks.Warning(
            f"database {alias!r} is a SQLite file that Fencepost writes for every fire: Django's own writes may meet a "
            "locked database",
            hint=f"let them wait for longer: {PATIENT}; or use PostgreSQL",
            id="fencepost.W007",
        )


def _transactions() -> Iterator[checks.CheckMessage]:
    atomic = [alias for alias, database in connections.settings.items() if database.get("ATOMIC_REQUESTS")]
    if atomic:
        yield checks.Info(
            f"ATOMIC_REQUESTS is set for {', '.join(map(repr, atomic))}: a request that is rolled back does not take "
            "back what scheduler.sync.trigger(…) wrote",
            hint="trigger in transaction.on_commit(…), or with connection=, inside of the request's own transaction",
            id="fencepost.I002",
        )
