"""Integrations register themselves: the core imports none, and finds them by the metadata of what is installed.

A package names its integration in its `pyproject.toml`, as Fencepost does for its own:

    [project.entry-points."fencepost.triggers"]
    apscheduler = "fencepost.apscheduler.triggers"

`fencepost.triggers`: modules that call `register_trigger_type`, by the name of the type.
`fencepost.applications`: what `Scheduler.asgi` and `.wsgi` make, by these names.
`fencepost.traces`: functions that make a trace context (W3C `traceparent`) the current one of a process.
`fencepost.telemetry`: functions that instrument a scheduler, by the name of the setting that asks for it.
`fencepost.stores`: functions of a URL and a namespace that make a store, by the scheme of the URL.
`fencepost.channels`: functions that make a channel for notices, by the name that `fencepost.toml` calls them by.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fencepost.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def registered(group: str) -> frozenset[str]:
    return frozenset(_found(group))


def load(group: str, name: str) -> Any:
    """Raises ImportError if it needs something that is not installed."""
    found = _found(group).get(name)
    if found is None:
        raise ConfigurationError(
            f"no {name!r} is registered as an entry point of {group!r}: Fencepost's own metadata is missing or old; "
            "install it again (pip install --force-reinstall --no-deps fencepost)"
        )
    return found.load()


@cache
def _found(group: str) -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # as slow to import as all the rest of this room

    return {each.name: each for each in entry_points(group=group)}
