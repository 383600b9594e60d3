"""Which rules of the time zones are in use: a calendar worked out with others may differ."""

from __future__ import annotations

import zoneinfo
from importlib import metadata
from pathlib import Path


def tzdata_version() -> str:
    """In zoneinfo's search order: the system's files, else those of the package."""
    for folder in map(Path, zoneinfo.TZPATH):
        if (folder / "UTC").exists():
            return f"{_version_in(folder)} (system)"
    return f"{metadata.version('tzdata')} (package)"


def _version_in(folder: Path) -> str:
    """Distributions differ in which of these files they keep."""
    for name, prefix in (("tzdata.zi", "# version "), ("+VERSION", "")):
        try:
            with (folder / name).open(encoding="ascii", errors="replace") as file:
                first = file.readline(100)
        except OSError:
            continue
        if first.startswith(prefix):
            return first.removeprefix(prefix).strip()
    return "version unknown"
