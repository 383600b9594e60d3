"""The first page: is every fire accounted for, what needs a person, how late are fires, who leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Literal

from fencepost.insight.board import BoardEntry, Reading
from fencepost.insight.pictures.needs import Need, needs_of
from fencepost.insight.pictures.tallies import counted
from fencepost.insight.views.shapes import Shape
from fencepost.insight.views.words import when
from fencepost.insight.visible import Sees, visible
from fencepost.model import FireRecord, State
from fencepost.store.base import FireQuery, Store

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader

MOST_RUNS = 500
"""Lateness is taken from the newest runs of a window."""
RAN = (State.SUCCEEDED, State.FAILED, State.RUNNING)


@dataclass(frozen=True, slots=True)
class Lateness:
    """From due to started."""

    p50_seconds: float | None
    p99_seconds: float | None
    worst_seconds: float | None
    runs: int
    """Of so many runs, the newest of the window. 0: none ran, and the others are None."""


@dataclass(frozen=True, slots=True)
class Overview:
    now: datetime
    since: datetime
    until: datetime
    verdict: Literal["yes", "no", "nothing"]
    """Is every fire accounted for? Nothing: none was due."""
    sentence: str
    due: int
    fates: Mapping[str, int]
    """Fires due in the window by state; those with none are left out."""
    counted_since: datetime
    """Later than `since`: there were too many to count them all."""
    overdue: int
    """Due for longer than they may wait, and not decided."""
    needs: tuple[Need, ...]
    more_needs: int
    lateness: Lateness
    leader: Shape | None
    """As in `/status`: replica, host, pid, term, state."""
    replicas: Sequence[Shape]
    jobs: Mapping[str, int]
    """How many are in which state."""
    store_seconds: float
    """How long the store took to answer a short question."""


async def overview(
    reader: Reader, store: Store, span: timedelta, sees: Sees | None = None, until: datetime | None = None
) -> Overview:
    """Of the time until now, or until then."""
    reading = visible(await reader.recent(), sees)
    begun = reader.steady()
    now = (await store.roster()).now
    took = reader.steady() - begun
    end = min(until or now, now) + datetime.resolution
    since = end - span
    found = await counted(reader, store, since, end, sees=sees)
    since = min(since, found.since)
    total = found.total
    overdue = await _overdue(store, since, reading, sees)
    needs, more = needs_of(reading) if sees is not None else _kept_needs(reader, reading)
    verdict, sentence = _sentence(total, overdue, max(since, found.since), since)
    return Overview(
        now=now,
        since=since,
        until=end,
        verdict=verdict,
        sentence=sentence,
        due=sum(total.values()),
        fates=dict(total),
        counted_since=max(since, found.since),
        overdue=overdue,
        needs=tuple(needs),
        more_needs=more,
        lateness=await _lateness(store, since, end, sees),
        leader=reading.cluster.leader(),
        replicas=reading.cluster.replicas(),
        jobs=dict(reading.jobs_by_state()),
        store_seconds=took,
    )


def _kept_needs(reader: Reader, reading: Reading) -> tuple[list[Need], int]:
    """Of one reading once."""
    known = reader.kept.needs
    if known is None or known[0] is not reading:
        known = reader.kept.needs = (reading, *needs_of(reading))
    return known[1], known[2]


async def _overdue(store: Store, since: datetime, reading: Reading, sees: Sees | None) -> int:
    """Fires that are due for longer than their job allows, and that no replica has decided."""
    query = FireQuery(
        states=(State.PENDING,), since=since, until=reading.now - timedelta(seconds=10), limit=1_000
    )
    late = [fire for fire in await store.find_fires(query) if sees is None or sees(fire.job_id)]
    if not late:
        return 0
    entries = {entry.id: entry for entry in reading.entries}
    return sum(fire.count for fire in late if _must_be_decided(fire, entries.get(fire.job_id), reading.now))


def _must_be_decided(fire: FireRecord, entry: BoardEntry | None, now: datetime) -> bool:
    if entry is None or entry.record is None or entry.pause or entry.orphaned or fire.backfill:
        return False
    return fire.due_at <= now - entry.record.job.decided_within


def _sentence(
    total: Counter[str], overdue: int, counted_since: datetime, since: datetime
) -> tuple[Literal["yes", "no", "nothing"], str]:
    due, under_way = total.total(), sum(total[state.value] for state in State if not state.final)
    where = f" since {when(counted_since)}" if counted_since > since else ""
    if overdue:
        return (
            "no",
            f"No. {_fires(overdue)} due{where}, and no replica has decided {'it' if overdue == 1 else 'them'}.",
        )
    if not due:
        return "nothing", "No fire was due."
    if under_way:
        ended = f"{due - under_way} {'has' if due - under_way == 1 else 'have'} one outcome each"
        rest = f"{under_way} {'is' if under_way == 1 else 'are'} under way"
        return "yes", f"Yes. {_fires(due)} due{where}: {ended}, {rest}."
    return "yes", f"Yes. {_fires(due)} due{where}, and each has one outcome."


def _fires(number: int) -> str:
    return "1 fire was" if number == 1 else f"{number} fires were"


async def _lateness(store: Store, since: datetime, until: datetime, sees: Sees | None) -> Lateness:
    rows = await store.find_fires(FireQuery(states=RAN, since=since, until=until, limit=MOST_RUNS))
    return lateness_of([fire for fire in rows if sees is None or sees(fire.job_id)])


def lateness_of(fires: Sequence[FireRecord]) -> Lateness:
    late = sorted(seconds for fire in fires if (seconds := late_by(fire)) is not None)
    if not late:
        return Lateness(None, None, None, 0)
    return Lateness(quantile(late, 0.5), quantile(late, 0.99), late[-1], len(late))


def late_by(fire: FireRecord) -> float | None:
    start = fire.attempts[0].started_at if fire.attempts else fire.started_at
    return None if start is None else max(0.0, (start - fire.due_at).total_seconds())


def quantile(ordered: Sequence[float], part: float) -> float:
    """The smallest that so many are not above."""
    return ordered[max(0, ceil(part * len(ordered)) - 1)]
