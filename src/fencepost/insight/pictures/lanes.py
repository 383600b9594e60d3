"""The timeline: a lane for each job, its fires past and planned in the buckets of a window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from heapq import merge
from typing import TYPE_CHECKING

from fencepost.insight.board import BoardEntry
from fencepost.insight.job_pages import page_of_jobs
from fencepost.insight.pictures.planned import Tick, ticks_of
from fencepost.insight.pictures.sampling import Sample, reaches
from fencepost.insight.pictures.window import Window, floor
from fencepost.insight.views.shapes import late_seconds
from fencepost.insight.visible import Sight, VisibleStore, visible
from fencepost.model import FireRecord, State, error_line
from fencepost.store.base import FireQuery, JobPage, Store

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader

MOST_LANES = 100
MOST_UNDECIDED = 500
MOST_FAILURES = 2_000
"""Fires that did not succeed, of all jobs, that are read for lanes with more fires than buckets."""

UNSUCCESSFUL = (State.LOST, State.FAILED, State.MISSED, State.SKIPPED, State.CANCELLED)
LOUDEST = (*UNSUCCESSFUL, State.RUNNING, State.WAITING, State.QUEUED, State.PENDING, State.SUCCEEDED)
"""Of several fires in one bucket the first of these is shown."""
_LOUDNESS = {state: number for number, state in enumerate(LOUDEST)}


@dataclass(frozen=True, slots=True)
class Mark:
    """What is drawn in one bucket: one fire; of several the worst, and how many there are."""

    at: datetime
    """Where its bucket begins."""
    key: str
    state: str
    reason: str | None
    refers_to: str | None
    due_at: datetime
    last_due_at: datetime
    """Later than `due_at`: the row stands for several fires that shared one fate."""
    started_at: datetime | None
    finished_at: datetime | None
    late_seconds: float | None
    attempt: int
    replica: str | None
    error_line: str | None
    count: int
    """Fires known in this bucket, those that the row stands for included."""
    states: Mapping[str, int]
    """How many of them are in which state."""
    more: bool
    """The bucket has more fires than were counted."""


@dataclass(frozen=True, slots=True)
class Lane:
    job_id: str
    entry: BoardEntry
    """How the job stands (`entry.shape` is the JSON of `/jobs`)."""
    marks: tuple[Mark, ...]
    """Oldest first, at most one for each bucket."""
    planned: tuple[Tick, ...]
    """Soonest first, at most one for each bucket."""
    exact: bool
    """Every fire is counted; else buckets with many fires are sampled."""


@dataclass(frozen=True, slots=True)
class Lanes:
    window: Window
    items: tuple[Lane, ...]
    next: str | None
    """Cursor of the next page."""
    failures_since: datetime
    """In sampled lanes, what did not succeed is drawn for sure from here on."""


MarksKept = dict[tuple[str, timedelta], tuple[Sample, datetime, tuple[Mark, ...]]]
"""By job and width: of which sample, from when on."""
MOST_KEPT = 500


async def lanes(
    reader: Reader,
    store: VisibleStore,
    window: Window,
    page: JobPage,
    wanted: Callable[[BoardEntry], bool] | None = None,
) -> Lanes:
    """`page`: of jobs by id, at most `MOST_LANES`; `wanted`: more conditions."""
    if wanted is None and store.sight.is_whole:
        entries, next = await page_of_jobs(reader, store, page)
    else:
        reading = visible(await reader.recent(), store.sight.sees_only)
        found = [
            entry for entry in reading.entries if page.has(entry.id) and (wanted is None or wanted(entry))
        ]
        entries, next = found[: page.limit], found[page.limit - 1].id if len(found) > page.limit else None
    return await lanes_of(reader, store, window, entries, next)


async def lanes_of(
    reader: Reader,
    store: VisibleStore,
    window: Window,
    entries: Sequence[BoardEntry],
    next: str | None = None,
) -> Lanes:
    """Of these jobs, in this order."""
    # Samples and marks are kept for all callers: only what is drawn passes through the sight of this one.
    samples = [await reader.kept.samples.of(store.whole, entry, window) for entry in entries]
    undecided = await _undecided(store.whole, window)
    failures_since = window.since
    failures: dict[str, list[FireRecord]] = {}
    if store.whole.counting is None and not all(sample.exact for sample in samples):
        failures, failures_since = await _failures(store.whole, window)
    items = tuple(
        _lane(
            reader.kept.marks,
            entry,
            sample,
            (*undecided.get(entry.id, ()), *failures.get(entry.id, ())),
            window,
            store.sight,
        )
        for entry, sample in zip(entries, samples, strict=True)
    )
    return Lanes(window, items, next, failures_since)


async def _undecided(store: Store, window: Window) -> dict[str, list[FireRecord]]:
    """By job: fires that are due and not decided."""
    query = FireQuery(
        states=(State.PENDING,), since=window.since, until=window.past_until, limit=MOST_UNDECIDED
    )
    return _by_job(await store.find_fires(query))


def _by_job(fires: Iterable[FireRecord]) -> dict[str, list[FireRecord]]:
    found: dict[str, list[FireRecord]] = {}
    for fire in fires:
        found.setdefault(fire.job_id, []).append(fire)
    return found


async def _failures(store: Store, window: Window) -> tuple[dict[str, list[FireRecord]], datetime]:
    """By job: its fires that did not succeed. The newest, and from when on these are all."""
    rows = await store.find_fires(
        FireQuery(states=UNSUCCESSFUL, since=window.since, until=window.past_until, limit=MOST_FAILURES)
    )
    return _by_job(rows), window.since if len(rows) < MOST_FAILURES else rows[-1].due_at


def _lane(
    kept: MarksKept,
    entry: BoardEntry,
    sample: Sample,
    more: Sequence[FireRecord],
    window: Window,
    sight: Sight,
) -> Lane:
    marks = _settled_marks(kept, entry.id, sample, window)
    if open_ := [*more, *(fire for fire in entry.active if _is_in(fire, window))]:
        marks = _with(marks, open_, sample, window)
    planned = () if entry.record is None else ticks_of(entry.record, window)
    return Lane(entry.id, entry, tuple(_seen(mark, sight) for mark in marks), planned, sample.exact)


def _seen(mark: Mark, sight: Sight) -> Mark:
    refers_to = mark.refers_to and sight.key(mark.refers_to)
    return mark if refers_to == mark.refers_to else replace(mark, refers_to=refers_to)


def _settled_marks(kept: MarksKept, job_id: str, sample: Sample, window: Window) -> tuple[Mark, ...]:
    """What has been drawn stays so, but for its ends: the window moves on, and new fires have come."""
    known = kept.get((job_id, window.width))
    edge = None
    if known is not None and known[0] is sample:
        edge = window.until
    elif known is not None and sample.joined_at is not None and sample.joined_to == id(known[0]):
        edge = floor(sample.joined_at, window.width)
    head = window.since + window.width
    if known is None or edge is None or known[1] > window.since:
        marks = marks_of(sample.fires, window, sample.dense_before)
    else:
        ends = [fire for fire in sample.fires if fire.due_at < head or fire.due_at >= edge]
        drawn = (mark for mark in known[2] if head <= mark.at < edge)
        marks = tuple(merge(drawn, marks_of(ends, window, sample.dense_before), key=lambda mark: mark.at))
    if len(kept) > MOST_KEPT:
        kept.clear()
    kept[job_id, window.width] = sample, window.since, marks
    return marks


def _with(
    marks: Sequence[Mark], fires: Sequence[FireRecord], sample: Sample, window: Window
) -> tuple[Mark, ...]:
    """Together with fires that are not final: the buckets that they are in are drawn again."""
    places = {_place(fire, window) for fire in fires}
    others = [fire for fire in sample.fires if _place(fire, window) in places]
    again = marks_of({fire.key: fire for fire in (*others, *fires)}.values(), window, sample.dense_before)
    rest = (mark for mark in marks if mark.at not in places)
    return tuple(merge(rest, again, key=lambda mark: mark.at))


def _place(fire: FireRecord, window: Window) -> datetime:
    return max(window.since, floor(fire.due_at, window.width))


def _is_in(fire: FireRecord, window: Window) -> bool:
    return fire.due_at < window.until and (fire.finished_at or window.now) >= window.since


def marks_of(
    fires: Iterable[FireRecord], window: Window, dense_before: datetime | None = None
) -> tuple[Mark, ...]:
    """`dense_before`: older buckets may have more fires than these."""
    buckets: dict[datetime, list[FireRecord]] = {}
    for fire in fires:
        at = _place(fire, window)
        if at < window.past_until and reaches(fire, window.since):
            buckets.setdefault(at, []).append(fire)
    return tuple(
        _mark(at, buckets[at], dense_before is not None and at < dense_before) for at in sorted(buckets)
    )


def _mark(at: datetime, fires: Sequence[FireRecord], more: bool) -> Mark:
    shown = min(fires, key=lambda fire: (_LOUDNESS[fire.state], -fire.due_at.timestamp()))
    states: dict[str, int] = {}
    for fire in fires:
        states[fire.state.value] = states.get(fire.state.value, 0) + fire.count
    first_start = shown.attempts[0].started_at if shown.attempts else shown.started_at
    return Mark(
        at=at,
        key=shown.key,
        state=shown.state.value,
        reason=shown.reason,
        refers_to=shown.refers_to,
        due_at=shown.due_at,
        last_due_at=shown.last_due,
        started_at=first_start,
        finished_at=shown.finished_at,
        late_seconds=late_seconds(shown.due_at, first_start),
        attempt=shown.attempt,
        replica=shown.replica,
        error_line=error_line(shown.error),
        count=sum(states.values()),
        states=states,
        more=more,
    )
