"""The result of a check: one line, and the remedy if the user has to do something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fencepost.store.preflight import Finding, Level, ok, problem, warning

__all__ = ["MOST_LISTED", "Finding", "Level", "ok", "problem", "the_first", "warning"]

MOST_LISTED = 20
"""Findings of one kind that are listed one by one."""


def the_first(findings: Iterable[Finding], remedy: str) -> Iterator[Finding]:
    """Findings of one kind and level: so many of them, and how many more there are. `remedy`: for those."""
    rest, level = 0, Level.OK
    for number, finding in enumerate(findings):
        if number < MOST_LISTED:
            yield finding
        else:
            rest, level = rest + 1, finding.level
    if rest:
        yield Finding(level, f"{rest} more like that", remedy)
