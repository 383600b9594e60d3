"""How far a run is: the latest report of its phases, sent at intervals; and how long a phase takes."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from fencepost.model import Json
from fencepost.model.triggers import iso
from fencepost.model.values import clean_number
from fencepost.pipeline.memory import Passed
from fencepost.runs.fire import Fire

BEFORE_THE_FIRST = "initializing"
EVERY = 0.25
"""Seconds between two reports, however often a phase reports."""
LEARNED_FROM = 10
"""Runs whose durations are kept."""
ENOUGH = 3
"""Runs after which what was learned counts more than what was declared."""
MANUAL = "manual"
"""What triggered a run whose trigger was not named."""


def triggered_by(scheduled: bool, args: Mapping[str, Json] | None) -> str:
    """For people: the calendar, or whatever name was given with a fire by hand."""
    named = (args or {}).get("trigger")
    return "scheduled" if scheduled else named if isinstance(named, str) else MANUAL


@dataclass(frozen=True)
class Eta:
    """Seconds that a phase takes: the median and the extremes of the last runs, or what was declared."""

    seconds: float
    low: float | None = None
    high: float | None = None


def expected(declared: float | None, durations: Sequence[float]) -> Eta | None:
    if len(durations) >= ENOUGH or (durations and declared is None):
        return Eta(round(statistics.median(durations), 3), min(durations), max(durations))
    return None if declared is None else Eta(declared)


def learned(durations: Mapping[str, Sequence[float]], passed: Sequence[Passed], run_type: str) -> Json:
    """With what this run has taken. A phase that was cut off and done again adds nothing new."""
    known = {name: list(seconds) for name, seconds in durations.items()}
    for each in passed:
        if each.outcome == "done":
            name = duration_name(run_type, each.name)
            known[name] = [*known.get(name, ()), each.seconds][-LEARNED_FROM:]
    return known


def duration_name(run_type: str, phase: str) -> str:
    """The same phase may have more to do in another type of run."""
    return f"{run_type}/{phase}"


@dataclass
class Progress:
    """What the ledger shows of a running pipeline. `report` is called from any thread, as often as a phase likes."""

    fire: Fire
    mode: str
    passed: list[Passed]
    run_type: str | None = None
    rewritten: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    _phase: str = BEFORE_THE_FIRST
    _message: str = ""
    _blocking: bool = False
    _eta: Eta | None = None
    _entered_at: datetime | None = None
    _maintenance_since: datetime | None = None
    _reported: tuple[float | None, float | None, str] = (None, None, "")
    _is_new: bool = False

    def enter(self, phase: str, message: str, blocking: bool = False, eta: Eta | None = None) -> None:
        """A phase begins. It is reported with the checkpoint that says which phases are done."""
        now = self.fire.now()
        self._phase, self._message, self._blocking, self._eta = phase, message, blocking, eta
        self._entered_at = now
        self._maintenance_since = (self._maintenance_since or now) if blocking else None
        self._reported = (None, None, "")

    def report(self, done: float | None, total: float | None, message: str) -> None:
        self._reported = (clean_number(done, "done"), clean_number(total, "total"), message)
        self._is_new = True

    def send(self) -> None:
        self._is_new = False
        self.fire.report(**self.shown())

    def shown(self) -> dict[str, Any]:
        """What `report` takes."""
        done, total, message = self._reported
        return {
            "done": done,
            "total": total,
            "message": message or self._message,
            "pipeline": {
                "phase": self._phase,
                "blocking": self._blocking,
                "mode": self.mode,
                "run_type": self.run_type,
                "rewritten": self.rewritten,
                "reused": self.reused,
                "eta": None if self._eta is None else asdict(self._eta),
                "phase_started_at": _time(self._entered_at),
                "maintenance_started_at": _time(self._maintenance_since),
                "updated_at": iso(self.fire.now()),
                "phases": [asdict(passed) for passed in self.passed],
            },
        }

    async def send_at_intervals(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.send_if_new()

    def send_if_new(self) -> None:
        if self._is_new:
            self.send()


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else iso(moment)
