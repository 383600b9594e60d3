"""Checking a job's `engine={…}` where the job is declared."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.errors import ConfigurationError
from fencepost.model import Json
from fencepost.settings import did_you_mean

Kinds = Mapping[str, type | tuple[type, ...]]


def checked(options: Mapping[str, Json], kinds: Kinds, engine: str) -> dict[str, Json]:
    for name, value in options.items():
        if name not in kinds:
            raise ConfigurationError(
                f"engine option {name!r} is not known to {engine}{did_you_mean(name, kinds)}; "
                f"it knows {', '.join(kinds)}"
            )
        if not isinstance(value, kinds[name]) or (isinstance(value, bool) and kinds[name] is not bool):
            raise ConfigurationError(f"engine option {name!r} has the wrong type: {value!r}")
    return dict(options)
