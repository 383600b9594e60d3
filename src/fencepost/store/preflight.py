"""What can be said of a store before it is opened: which promise it keeps, and whether opening it would write.

Opening a store is more than reading it. It makes tables where there are none, and the first process after a restart of
the machine or the server puts that on record: replicas are declared dead, runs lost. That is for a replica to do. So
each store checks itself over a connection that only reads (`Store.preflight`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fencepost.errors import NothingStored
from fencepost.store.formats import UPGRADE, Format

START = "start a replica: `fencepost run app:scheduler`"


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """Works, but perhaps not as intended."""
    PROBLEM = "problem"
    """Something does not run, or may run wrongly."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line, and the remedy if something is to be done."""

    level: Level
    what: str
    remedy: str | None = None


def ok(what: str) -> Finding:
    return Finding(Level.OK, what)


def warning(what: str, remedy: str) -> Finding:
    return Finding(Level.WARNING, what, remedy)


def problem(what: str, remedy: str) -> Finding:
    return Finding(Level.PROBLEM, what, remedy)


@dataclass(frozen=True, slots=True)
class Preflight:
    findings: tuple[Finding, ...]
    may_open: bool = True
    """Whether there is a store, and opening it changes nothing."""
    nothing: NothingStored | None = None
    """The namespace holds nothing."""


def nothing_there(place: str, namespace: str, others: Sequence[str], *findings: Finding) -> Preflight:
    return Preflight(findings, may_open=False, nothing=NothingStored(place, namespace, others))


def not_shared() -> Preflight:
    what = "it lives inside one process: every other one runs every job as well, and none can look into it"
    remedy = "for more than one process give a store that is shared, such as sqlite:///app.db"
    return Preflight((warning(what, remedy),), may_open=False)


def not_checked(name: str) -> Preflight:
    """Of a store that does not say how it can be checked."""
    what = f"the code brings a store of its own, {name}: opening it might write, so it stays closed"
    return Preflight(
        (warning(what, "look at it by its URL: `fencepost doctor --store URL`"),), may_open=False
    )


def unless_restarted(is_known: bool, *findings: Finding) -> Preflight:
    """`is_known`: whether a replica has been there since the server started."""
    if is_known:
        return Preflight(findings)
    what = "the server has restarted or failed over, and no replica has been there since: nothing runs"
    return Preflight((*findings, problem(what, START)), may_open=False)


def unless_outdated(format: Format, checked: Preflight) -> Preflight:
    """`checked`, unless opening the store would convert it. A newer format is an error when it is opened."""
    if not format.steps:
        return checked
    what = f"stored in format {format.stored}: this version would {'; '.join(format.steps)}"
    remedy = f"upgrade the replicas, the first to start converts the store; or call {UPGRADE}"
    return Preflight((*checked.findings, warning(what, remedy)), may_open=False)
