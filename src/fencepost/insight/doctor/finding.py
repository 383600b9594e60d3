"""What a check finds: one line, and the remedy if something is to be done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

MOST_LISTED = 20
"""Findings of one kind that are listed one by one."""


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """Works, but perhaps not as intended."""
    PROBLEM = "problem"
    """Something does not run, or may run wrongly."""


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str
    remedy: str | None = None


def ok(what: str) -> Finding:
    return Finding(Level.OK, what)


def warning(what: str, remedy: str) -> Finding:
    return Finding(Level.WARNING, what, remedy)


def problem(what: str, remedy: str) -> Finding:
    return Finding(Level.PROBLEM, what, remedy)


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
