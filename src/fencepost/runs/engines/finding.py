"""Engines by name: given to the scheduler, or registered by a package as an entry point.

    [project.entry-points."fencepost.engines"]
    celery = "fencepost.engines.celery:CeleryEngine"

A registered engine is made without arguments, by the replica that first needs it, and takes what it must know from the
environment. If it has a static method `check_options`, that checks a job's `engine={…}` where the job is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from fencepost.errors import ConfigurationError, missing_extra
from fencepost.model import Json, integrations
from fencepost.model.values import clean_json
from fencepost.runs.engines.base import Engine

GROUP = "fencepost.engines"
OPTIONS_LIMIT = 65_536

Engines = Mapping[str, Engine]


def known_engines(given: Engines) -> frozenset[str]:
    return integrations.registered(GROUP) | frozenset(given)


def engine_named(name: str, given: Engines) -> Engine:
    return given[name] if name in given else cast(Engine, _registered(name)())


def checked_options(name: str, options: Any, given: Engines, what: str) -> dict[str, Json]:
    """The options of a job, as JSON, if its engine knows them."""
    if options is None:
        options = {}
    if not isinstance(options, Mapping) or not all(isinstance(each, str) for each in options):
        raise ConfigurationError(f"{what}: engine={options!r} must be a dictionary of the engine's options")
    cleaned: dict[str, Json] = clean_json(options, f"engine of {what}", OPTIONS_LIMIT)
    check = getattr(given[name] if name in given else _registered(name), "check_options", None)
    return cleaned if check is None else dict(check(cleaned))


def _registered(name: str) -> Any:
    try:
        return integrations.load(GROUP, name)
    except ModuleNotFoundError as error:
        raise missing_extra(f"executor={name!r}", error, name) from None
