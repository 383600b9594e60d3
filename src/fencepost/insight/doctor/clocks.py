"""How far away the store is, and by how much its clock differs from this host's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median

from fencepost.clock import Clock
from fencepost.insight.doctor.finding import Finding, ok, warning
from fencepost.insight.views.words import length
from fencepost.store.base import Store

TRIPS = 5
SLOW = 0.1
"""Seconds. A due fire is to start within so long."""
NOTICEABLE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Trip:
    """One question to the store."""

    seconds: float
    ahead: timedelta
    """By how much the store's clock is ahead of the middle of the trip. It may be off by half of the trip."""


async def trips(store: Store, clock: Clock) -> list[Trip]:
    return [await _trip(store, clock) for _ in range(TRIPS)]


async def _trip(store: Store, clock: Clock) -> Trip:
    left, begun = clock.wall(), clock.steady()
    there = (await store.roster()).now
    took = clock.steady() - begun
    return Trip(took, there - left - timedelta(seconds=took / 2))


def distance(made: Sequence[Trip]) -> Iterator[Finding]:
    typical = median(trip.seconds for trip in made)
    answers = f"it answers in {typical * 1000:.1f} ms, the median of {len(made)}"
    if typical <= SLOW:
        yield ok(answers)
    else:
        what = f"{answers}: due fires start later than the promised {SLOW * 1000:.0f} ms"
        yield warning(what, "bring the store nearer, or find out what keeps it busy")


def clocks(made: Sequence[Trip]) -> Iterator[Finding]:
    shortest = min(made, key=lambda trip: trip.seconds)
    doubt = timedelta(seconds=shortest.seconds / 2)
    apart = max(abs(shortest.ahead) - doubt, timedelta(0))
    if apart <= NOTICEABLE:
        yield ok(
            f"this host's clock agrees with the store's to within {_length(abs(shortest.ahead) + doubt)}"
        )
        return
    way = "behind" if shortest.ahead > timedelta(0) else "ahead of"
    yield warning(
        f"this host's clock is {_length(apart)} {way} the store's: what is due and what has expired is judged by the "
        "store's alone, but the times in this host's logs, and those your jobs read for themselves, are off",
        "set the clock by NTP, on both if you do not know which one is right",
    )


def _length(time: timedelta) -> str:
    return length(max(time, timedelta(milliseconds=1)))
