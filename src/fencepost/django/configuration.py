"""`FENCEPOST = {…}` of the settings: any setting of Fencepost in capitals, and `STORE` as an alias of `DATABASES`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from django.conf import settings as project

from fencepost.django.databases import check_alias, database_url, is_url
from fencepost.django.project import is_testing
from fencepost.django.schedulers import ProjectScheduler
from fencepost.errors import ConfigurationError
from fencepost.settings import Settings, did_you_mean

DEFAULT_ALIAS = "default"
FOR_THE_WIDGET = "SCHEDULER"
NAMES = tuple(field.name.upper() for field in fields(Settings))


@dataclass(frozen=True, kw_only=True)
class DjangoSettings(Settings):
    database: str | None = None
    """The alias of the database that is the store, where no URL is given."""

    def store_url(self, *, env: Mapping[str, str] | None = None) -> str:
        if self.store is not None or self.database is None:
            return super().store_url(env=env)
        if is_testing():
            raise ConfigurationError(
                "the database of a test is no store: put `with fencepost.django.testing.virtual():` around what "
                'triggers a job, or give the tests a store of their own, as FENCEPOST = {"STORE": "sqlite:////tmp/tests.db"}'
            )
        return database_url(self.database)


def make_scheduler() -> ProjectScheduler:
    """The project's scheduler, without jobs. Raises `ConfigurationError`."""
    given = given_settings()
    store = given.pop("store", None)
    scheduler = ProjectScheduler(**given)
    scheduler.settings = _with_store(scheduler.settings, store)
    return scheduler


def given_settings() -> dict[str, Any]:
    """`FENCEPOST`, checked as far as its names go; the values are checked where they are used."""
    given: Any = getattr(project, "FENCEPOST", {})
    if not isinstance(given, Mapping):
        raise ConfigurationError('FENCEPOST must be a dictionary, such as {"STORE": "default"}')
    for name in given:
        if name not in (*NAMES, FOR_THE_WIDGET):
            raise ConfigurationError(f"FENCEPOST has no setting {name!r}{did_you_mean(str(name), NAMES)}")
    return {name.lower(): value for name, value in given.items() if name != FOR_THE_WIDGET}


def _with_store(settings: Settings, store: Any) -> DjangoSettings:
    """`STORE` of the settings, else `FENCEPOST_STORE` or fencepost.toml, else the project's default database."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    if store is None and settings.store is not None:
        return DjangoSettings(**values)
    if store is None:
        return DjangoSettings(**values, database=DEFAULT_ALIAS)
    if not isinstance(store, str):
        raise ConfigurationError('FENCEPOST["STORE"] must be text: an alias of DATABASES, or a URL')
    if is_url(store):
        return DjangoSettings(**{**values, "store": store})
    check_alias(store)
    return DjangoSettings(**{**values, "store": None}, database=store)


def ignored_variable() -> str | None:
    """The variable that names another store than the settings do."""
    variable = next(
        (name for name in ("FENCEPOST_STORE", "FENCEPOST_STORE_FILE") if os.environ.get(name)), None
    )
    return variable if given_settings().get("store") else None
