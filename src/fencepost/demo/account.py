"""The reckoning: three records that know nothing of each other.

What was due is worked out again from the recorded schedules, by code that shares nothing with the triggers.
What became of it is what the store says. Whether anything ran twice is what the bodies wrote down themselves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from fencepost.demo import diary
from fencepost.demo.diary import Entry
from fencepost.demo.director import Stage
from fencepost.demo.processes import Replicas
from fencepost.demo.watch import name_of
from fencepost.insight.why import answer
from fencepost.model import FireRecord, JobEvent, State, fire_key
from fencepost.store.base import FireQuery, Store
from fencepost.testing.calendar import due_between

PAGE = 1000
RETENTION = timedelta(days=30)
INSTANT = timedelta(microseconds=1)


class Killed(Protocol):
    ended_at: float


@dataclass
class Account:
    until: datetime
    due: int = 0
    states: Counter[str] = field(default_factory=Counter)
    """Fires by final state."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Skipped fires by reason."""
    retried: int = 0
    rerun: int = 0
    """Fires that succeeded or failed after a crash had cut them off."""
    lost: list[str] = field(default_factory=list)
    unaccounted: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What else should not be."""
    takeovers: list[float] = field(default_factory=list)
    lateness: list[float] = field(default_factory=list)
    """Seconds from due to the first start, by the diary."""
    replicas: int = 0
    killed: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    example: FireRecord | None = None
    """The fire whose story is worth asking for."""
    answer: str = ""
    """What `fencepost why` says of it."""

    @property
    def ran(self) -> int:
        return self.states["succeeded"] + self.states["failed"]

    @property
    def is_right(self) -> bool:
        return not (self.unaccounted or self.doubled or self.problems)

    def late(self, share: float) -> float | None:
        ordered = sorted(self.lateness)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


async def reckon(
    store: Store, processes: Replicas, diary_path: Path, stage: Stage, until: datetime
) -> Account:
    account = Account(until, takeovers=stage.takeovers, replicas=len(processes.all))
    account.killed = [each.name for each in processes.all if each.ended_by == "kill -9"]
    account.stopped = [each.name for each in processes.all if each.ended_by == "SIGTERM"]
    account.problems += [f"{each.name} ended with code {each.code}" for each in processes.failed]
    fires = await _all_fires(store)
    entries = diary.read(diary_path)
    rerun = set()
    for record in await store.jobs():
        due = due_by(await store.history(record.id), until)
        _account(account, record.id, due, [fire for fire in fires if fire.job_id == record.id])
        if record.job.after_crash == "rerun":
            rerun.add(record.id)
    killed = {each.pid: each for each in processes.all if each.ended_by == "kill -9"}
    _compare(account, entries, {fire.key: fire for fire in fires}, rerun, killed)
    account.example = _example(account, fires)
    if account.example is not None:
        asked = f"{account.example.due_at:%H:%M:%S}"
        account.answer = (await answer(store, account.example.job_id, asked, RETENTION)).text
    return account


def due_by(history: Iterable[JobEvent], until: datetime) -> list[datetime]:
    """What the recorded definitions made due, each from when it took effect until its successor did."""
    defined = [event for event in history if event.kind in ("defined", "removed")]
    due: list[datetime] = []
    for event, successor in zip(defined, [*defined[1:], None], strict=True):
        if event.trigger is not None:
            due += due_between(event.trigger, event.since, min(until, successor.at) if successor else until)
    return due


async def _all_fires(store: Store) -> list[FireRecord]:
    """All but those that are only planned, page by page. A page may end among fires that were due together, so
    the next begins with them again."""
    found: dict[str, FireRecord] = {}
    states = tuple(state for state in State if state is not State.PENDING)
    before: datetime | None = None
    while True:
        page = await store.find_fires(FireQuery(states=states, until=before, limit=PAGE))
        new = [fire for fire in page if fire.key not in found]
        found.update({fire.key: fire for fire in new})
        if len(page) < PAGE or not new:
            return list(found.values())
        before = page[-1].due_at + INSTANT


def _account(account: Account, job_id: str, due: Sequence[datetime], rows: Sequence[FireRecord]) -> None:
    """Each moment of the calendar belongs to exactly one final row, and each row to the calendar."""
    account.due += len(due)
    moments = set(due)
    account.problems += [
        f"{row.key} is in the ledger and not in the calendar"
        for row in rows
        if row.scheduled and row.due_at <= account.until and row.due_at not in moments
    ]
    fates: dict[datetime, list[FireRecord]] = {moment: [] for moment in sorted(due)}
    ordered = list(fates)
    for row in (row for row in rows if row.scheduled and row.state.final):
        for moment in ordered[bisect_left(ordered, row.due_at) : bisect_right(ordered, row.last_due)]:
            fates[moment].append(row)
    for moment, found in fates.items():
        if not found:
            account.unaccounted.append(fire_key(job_id, moment))
        elif len(found) > 1:
            account.problems.append(f"{fire_key(job_id, moment)} has {len(found)} outcomes")
        else:
            _count(account, found[0])


def _count(account: Account, fire: FireRecord) -> None:
    account.states[fire.state.value] += 1
    if fire.state is State.SKIPPED:
        account.reasons[fire.reason or ""] += 1
    elif fire.state is State.LOST:
        account.lost.append(
            f"{fire.job_id} of {fire.due_at:%H:%M:%S}: {name_of(fire.replica)} was killed in mid-run"
        )
    elif any(attempt.outcome == "lost" for attempt in fire.attempts):
        account.rerun += 1
    account.retried += any(attempt.outcome == "retry" for attempt in fire.attempts)


def _compare(
    account: Account,
    entries: Sequence[Entry],
    fires: Mapping[str, FireRecord],
    rerun: set[str],
    killed: Mapping[int, Killed],
) -> None:
    """The ledger against the diary."""
    by_key: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_key[entry.key].append(entry)
    for key, own in by_key.items():
        if key not in fires:
            account.problems.append(f"{key} has run and is not in the ledger")
        elif ran_twice(own, killed if fires[key].job_id in rerun else {}):
            account.doubled.append(key)
        elif fires[key].due_at <= account.until:
            account.lateness.append(own[0].wall - fires[key].due_at.timestamp())
    for key, fire in fires.items():
        if fire.state is State.SUCCEEDED and not any(entry.what == "end" for entry in by_key.get(key, ())):
            account.problems.append(f"{key} succeeded, and its body never ended")


def ran_twice(entries: Sequence[Entry], killed: Mapping[int, Killed]) -> bool:
    """A further start needs an earlier one that raised, or whose process had been killed by then."""
    open_starts: list[Entry] = []
    for entry in entries:
        if entry.what == "start":
            open_starts = [
                each
                for each in open_starts
                if each.pid not in killed or killed[each.pid].ended_at > entry.wall
            ]
            if open_starts:
                return True
            open_starts = [entry]
        elif entry.what == "raised":
            open_starts = []
    return False


def _example(account: Account, fires: Sequence[FireRecord]) -> FireRecord | None:
    """Rather a lost fire than a skipped one, rather that than any."""
    decided = [fire for fire in fires if fire.state.final and fire.last_due <= account.until]
    for states in ((State.LOST,), (State.SKIPPED,), tuple(State)):
        for fire in decided:
            if fire.state in states:
                return fire
    return None
