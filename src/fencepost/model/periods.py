"""Which calendar was in force when, and when the job was paused: read from its recorded history.

What was due follows from this alone. `why` answers from it, and `audit` compares the ledger with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fencepost.model import Gap, JobEvent
from fencepost.model.triggers import EARLIEST, Trigger, stored_trigger

INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class DefinitionPeriod:
    """One definition of a job, from when to when it held: the fires in (since, until] are its own."""

    trigger: Trigger | None
    since: datetime
    until: datetime | None = None
    ended_by: JobEvent | None = None


def periods_of(history: Sequence[JobEvent]) -> list[DefinitionPeriod]:
    """A definition holds until its successor does. Usually that is the moment of the change; where the store's
    clock had stepped back it is later, because fires up to then had been decided."""
    found: list[DefinitionPeriod] = []
    for event in history:
        if event.kind not in ("defined", "removed"):
            continue
        if found and found[-1].until is None:
            found[-1] = replace(found[-1], until=event.since, ended_by=event)
        if event.kind == "defined":
            trigger = stored_trigger(event.trigger) if event.trigger else None
            found.append(DefinitionPeriod(trigger, event.since))
    return found


def pauses_of(history: Sequence[JobEvent]) -> list[Gap]:
    """A pause ends by itself, or when it is resumed or replaced: that ends all there are, also one that seems to lie
    ahead because the store's clock has stepped back."""
    found: list[Gap] = []
    for event in history:
        if event.kind not in ("paused", "resumed"):
            continue
        for number in reversed(range(len(found))):
            until = found[number].until
            if until is not None and until <= event.at:
                break
            found[number] = replace(found[number], until=event.at)
        if event.kind == "paused":
            found.append(Gap(event.at, event.until, event.note, event.by))
    return found


class JobCalendar:
    """All that a job was ever due, as far as its history is kept."""

    def __init__(self, history: Sequence[JobEvent]) -> None:
        self._periods = [period for period in periods_of(history) if period.trigger is not None]
        self.known_after = _known_after(history)
        """Up to here the history is forgotten: there may have been fires."""

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The fires strictly after `moment`."""
        for period in self._periods:
            assert period.trigger is not None
            if period.until is not None and period.until <= moment:
                continue
            for due in period.trigger.after(max(moment, period.since)):
                if period.until is not None and due > period.until:
                    break
                yield due

    def has(self, moment: datetime) -> bool:
        return next(self.after(moment - INSTANT), None) == moment

    def lists(self, moment: datetime) -> bool:
        """Whether a definition names this very moment, also one that it was too late for."""
        triggers = (period.trigger for period in self._periods if period.trigger is not None)
        return any(trigger.listed_until(moment)[-1:] == (moment,) for trigger in triggers)

    def count(self, first: datetime, last: datetime) -> int:
        """How many there are from `first` to `last`, both included."""
        found = 0
        for period in self._periods:
            assert period.trigger is not None
            start, end = max(first - INSTANT, period.since), min(last, period.until or last)
            if start < end:
                found += period.trigger.count_after(start, end)
        return found


def _known_after(history: Sequence[JobEvent]) -> datetime:
    """The last definition is always kept, so a job without any never had one."""
    for event in history:
        if event.kind in ("defined", "removed"):
            first = event.kind == "defined" and event.version == 1
            return EARLIEST if first else event.since
    return EARLIEST
