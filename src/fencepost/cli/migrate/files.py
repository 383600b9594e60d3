"""Reading what the user names: bounded, as text, and never executed."""

from __future__ import annotations

import os
from pathlib import Path

from fencepost.cli.migrate.values import MOST_BYTES
from fencepost.errors import ConfigurationError, UsageError


def text_of(path: Path) -> str:
    """The text of a file; Latin-1 where it is not UTF-8, which old crontabs may be."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name a file in it")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror}; name a file that you may read"
        ) from None
    if len(data) > MOST_BYTES:
        raise ConfigurationError(
            f"{path} is larger than {MOST_BYTES // 1_000_000} MB; split it and import the parts"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def machine_zone() -> str | None:
    """The name of this machine's time zone, where it can be found: TZ, /etc/timezone, /etc/localtime."""
    if name := os.environ.get("TZ", "").removeprefix(":"):
        return name if not name.startswith("/") else None
    try:
        if name := Path("/etc/timezone").read_text(encoding="ascii").strip():
            return name
    except (OSError, ValueError):
        pass
    try:
        return os.readlink("/etc/localtime").partition("zoneinfo/")[2] or None
    except OSError:
        return None
