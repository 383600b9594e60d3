"""Calendars that are written in `fencepost.toml`, as `[calendars.zurich]`, or below `[tool.fencepost]`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.settings import did_you_mean, reserved_table


def calendar_table(name: str, directory: Path) -> tuple[Path, dict[str, Any]]:
    """The table of this calendar, and the file that it is in."""
    path, tables = reserved_table("calendars", directory)
    if not isinstance(tables, Mapping) or not isinstance(tables.get(name), Mapping):
        known = tables if isinstance(tables, Mapping) else ()
        raise ConfigurationError(
            f"{path} has no calendar {name!r}{did_you_mean(str(name), known)}; "
            f'write [calendars.{name}] with holidays = "CH-ZH", or give Calendar({name!r}, holidays="CH-ZH")'
        )
    return path, dict(tables[name])
