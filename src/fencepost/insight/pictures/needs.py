"""What needs a person: one line each, with what mends it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from heapq import nsmallest
from typing import Literal

from fencepost.insight.audit.job import PATIENCE
from fencepost.insight.board import BoardEntry, Reading
from fencepost.insight.views.standing import described
from fencepost.insight.views.words import length, when
from fencepost.model import State
from fencepost.model.triggers.following import parents_of

MOST_NEEDS = 50
FAILING = 1
NOTHING = timedelta(0)
LATE = timedelta(seconds=10)
"""A last run that started this much after its due time is worth a line; less if the job's `misfire_after` is less."""
SHORTEST_LATE = timedelta(seconds=1)

Action = Literal["run", "resume", "pause", "retry", "job", "fire", "cluster", "doctor"]


@dataclass(frozen=True, slots=True)
class Need:
    level: Literal["problem", "warning"]
    kind: Literal["failing", "late", "paused", "orphaned", "behind", "conflict", "unreadable", "cluster"]
    what: str
    """One line: `broken failed 60 times in a row`."""
    detail: str
    """The error's last line, the reason of a pause, …; may be empty."""
    action: Action
    """The button that mends it, or the page that shows more."""
    job_id: str | None = None
    fire: str | None = None
    count: int = 1


def needs_of(reading: Reading) -> tuple[list[Need], int]:
    """The worst first, and how many more there are."""
    found = list(_cluster(reading))
    for entry in reading.entries:
        if _may_need(entry, reading):
            found += _job(entry, reading)
    worst = nsmallest(MOST_NEEDS, found, key=_rank)
    return worst, len(found) - len(worst)


def _rank(need: Need) -> tuple[bool, int, int, str]:
    return need.level != "problem", _ORDER.index(need.kind), -need.count, need.job_id or ""


def _may_need(entry: BoardEntry, reading: Reading) -> bool:
    """Most jobs need nothing, which is seen at once."""
    record = entry.record
    if record is None or entry.mark is not None or entry.pause is not None or entry.orphaned or entry.rivals:
        return True
    run = record.last_run
    is_late = run is not None and run.started_at - run.due_at > SHORTEST_LATE
    return record.failures_in_a_row > 0 or is_late or record.behind_at(reading.now - PATIENCE)


_ORDER = ("cluster", "unreadable", "behind", "conflict", "failing", "orphaned", "late", "paused")


def _cluster(reading: Reading) -> Iterator[Need]:
    cluster = reading.cluster
    if not cluster.anybody:
        yield Need("problem", "cluster", "No replica is up: nothing runs", "", "doctor")
    elif cluster.leader() is None:
        yield Need("problem", "cluster", "No replica leads: nothing new is planned", "", "cluster")
    silent = [id for id, state in cluster.standing.items() if state in ("overdue", "dead")]
    if silent:
        what = (
            f"{silent[0]} gives no sign of life"
            if len(silent) == 1
            else f"{len(silent)} replicas give no sign of life"
        )
        yield Need("warning", "cluster", what, ", ".join(sorted(silent)[:5]), "cluster", count=len(silent))


def _job(entry: BoardEntry, reading: Reading) -> Iterable[Need]:
    record, mark = entry.record, entry.mark
    if mark is not None:
        yield Need("problem", "unreadable", f"{entry.id} cannot be read", mark.why, "doctor", entry.id)
    if record is None:
        return
    if entry.rivals:
        what = f"{entry.id} is declared by two applications"
        yield Need("problem", "conflict", what, str(entry.rivals[0].origin), "job", entry.id)
    run = record.last_run
    if run is not None and record.failures_in_a_row >= FAILING:
        times = record.failures_in_a_row
        fate = "was lost" if run.state is State.LOST else "failed"
        what = f"{entry.id} {fate}" + (f" {times} times in a row" if times > 1 else "")
        detail = run.error_line or run.reason or ""
        yield Need("problem", "failing", what, detail, "retry", entry.id, run.key, times)
    if entry.orphaned:
        what = f"{entry.id} is {described('orphaned', entry.shape)}"
        yield Need("warning", "orphaned", what, f"task {record.job.target}", "job", entry.id)
    if entry.pause is not None:
        until = f"paused until {when(entry.pause.until)}" if entry.pause.until else "paused without an end"
        by = f", by {entry.pause.by}" if entry.pause.by else ""
        note = f"“{entry.pause.note}”" if entry.pause.note else "no reason given"
        yield Need("warning", "paused", f"{entry.id} is {until}", f"{note}{by}", "resume", entry.id)
    elif not entry.orphaned:
        limit = max(record.job.decided_within, PATIENCE)
        if record.behind_at(reading.now - limit):
            what = f"{entry.id} has fires that are due and not planned"
            yield Need("problem", "behind", what, "the leader plans them", "doctor", entry.id)
        if (
            run is not None
            and run.started_at - run.due_at
            > min(LATE, record.job.misfire_after) + (record.job.jitter or NOTHING)
            and "@" in run.key
            and not parents_of(
                record.job.trigger
            )  # it has the due time of those, and starts when they have ended
        ):
            late = run.started_at - run.due_at
            what = f"{entry.id} started {length(late)} late"
            yield Need("warning", "late", what, f"due {when(run.due_at)}", "fire", entry.id, run.key)
