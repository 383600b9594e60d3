"""Triggers as JSON, of any type: ours, those of integrations, and those that this host does not know."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model import integrations
from fencepost.model.triggers.base import Trigger
from fencepost.model.triggers.combined import (
    difference_from_json,
    intersection_from_json,
    union_from_json,
)
from fencepost.model.triggers.crontab import cron_from_json
from fencepost.model.triggers.following import after_from_json
from fencepost.model.triggers.interval import every_from_json
from fencepost.model.triggers.moments import at_from_json
from fencepost.model.triggers.open_days import open_days_from_json
from fencepost.model.triggers.recurrence import rrule_from_json
from fencepost.model.triggers.spread import spread_from_json
from fencepost.model.triggers.times import did_you_mean

INTEGRATIONS = "fencepost.triggers"
"""Their entry points. They are imported when first met, because they may need an extra."""


def trigger_from_json(value: Mapping[str, Any]) -> Trigger:
    """The trigger that `to_json` wrote. The value comes from outside: everything is checked."""
    if not isinstance(value, Mapping):
        raise ConfigurationError(f'{value!r} is not a trigger; give an object like {{"type": "every", …}}.')
    kind = str(value.get("type"))
    if kind not in _READERS and kind in integrations.registered(INTEGRATIONS):
        _import_for(kind)
    if kind not in _READERS:
        known = sorted(_READERS.keys() | integrations.registered(INTEGRATIONS))
        hint = did_you_mean(kind, known)
        raise ConfigurationError(f"{kind!r} is no trigger type; {hint}set type to one of {', '.join(known)}.")
    try:
        return _READERS[kind](value)
    except RecursionError:
        raise ConfigurationError(
            "the trigger has too many combinations in one another; write fewer."
        ) from None


def stored_trigger(value: Mapping[str, Any]) -> Trigger:
    """The same from a store, which other hosts write to. One that names a zone or a type that is not known here can
    be kept and written back, but not expanded."""
    try:
        return trigger_from_json(value)
    except ConfigurationError as error:
        if not isinstance(dict(value).get("type"), str):
            raise
        return Foreign(json.dumps(value, sort_keys=True), str(error))


@dataclass(frozen=True, slots=True)
class Foreign(Trigger):
    """A trigger of another host, as its JSON: this one does not know the zone or the type that it names."""

    text: str
    why: str = field(compare=False)

    @property
    def foreign(self) -> str:
        return self.why

    def describe(self) -> str:
        return f"{self.text}, which this host does not know"

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.text)
        return value

    def _after(self, moment: datetime) -> Iterator[datetime]:
        raise ConfigurationError(f"{self.text} cannot be expanded here: {self.why}")


def register_trigger_type(
    name: str,
    read: Callable[[Mapping[str, Any]], Trigger],
    convert: Callable[[Any], Trigger] | None = None,
) -> None:
    """Let `trigger_from_json` read another type. `read` must check what it is given. `convert` makes one of a trigger
    of the library of that name."""
    _READERS[name] = read
    if convert is not None:
        _CONVERTERS[name] = convert


def converted(given: Any) -> Trigger | None:
    """A trigger of another library as ours; None: no integration is registered for that library."""
    library = type(given).__module__.partition(".")[0]
    if library not in _CONVERTERS and library in integrations.registered(INTEGRATIONS):
        _import_for(library)
    convert = _CONVERTERS.get(library)
    return None if convert is None else convert(given)


def _import_for(kind: str) -> None:
    try:
        integrations.load(INTEGRATIONS, kind)
    except ImportError as problem:
        raise ConfigurationError(f"a trigger of type {kind!r} cannot be read: {problem}") from problem


_READERS: dict[str, Callable[[Mapping[str, Any]], Trigger]] = {
    "every": every_from_json,
    "cron": cron_from_json,
    "at": at_from_json,
    "rrule": rrule_from_json,
    "after": after_from_json,
    "calendar": lambda value: open_days_from_json(value, trigger_from_json),
    "spread": lambda value: spread_from_json(value, trigger_from_json),
    "any": lambda value: union_from_json(value, trigger_from_json),
    "all": lambda value: intersection_from_json(value, trigger_from_json),
    "except": lambda value: difference_from_json(value, trigger_from_json),
}

_CONVERTERS: dict[str, Callable[[Any], Trigger]] = {}
