"""What a namespace says of itself: its format, its history."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fencepost.store.sql.statements import Statements


def meta(sql: Statements, name: str) -> str | None:
    row = sql.one("select value from {meta} where name = ?", name)
    return row[0] if row else None


def set_meta(sql: Statements, name: str, value: str) -> None:
    sql.put("meta", ("name", "value"), [(name, value)])


def prefix_of(namespace: str) -> str:
    """With which the names of its tables begin."""
    return "fencepost_" if namespace == "default" else f"fencepost_{namespace}_"


def namespaces(tables: Iterable[str]) -> list[str]:
    """Those that have these tables."""
    found = (re.fullmatch(r"fencepost_(?:(.+)_)?meta", name) for name in tables)
    return sorted(each[1] or "default" for each in found if each)
