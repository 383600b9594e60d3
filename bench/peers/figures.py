"""What the notes of a run come to: lateness, doubled and lost fires, gaps. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cluster.harness import quantile

HOLDS_UNTIL = 2.0
"""Seconds of lateness at the 99th percentile up to which a rate counts as held, for all alike."""


@dataclass(frozen=True)
class Start:
    job: int
    due: float | None
    """None: the peer does not tell its jobs when they were due."""
    at: float
    pid: int


@dataclass(frozen=True)
class Grid:
    """When jobs are due, as in `Work`."""

    jobs: int
    period: int
    spread: bool = False

    def offset(self, job: int) -> float:
        return job * self.period / self.jobs if self.spread else job % self.period

    def due(self, since: float, until: float) -> set[tuple[int, float]]:
        """All fires with `since` <= due < `until`."""
        found = set()
        for job in range(self.jobs):
            due = since + (self.offset(job) - since) % self.period
            while due < until - 1e-6:
                found.add((job, round(due, 3)))
                due += self.period
        return found

    def last_before(self, job: int, moment: float) -> float:
        offset = self.offset(job)
        return math.floor((moment - offset) / self.period) * self.period + offset


def by_fire(starts: Iterable[Start], grid: Grid) -> dict[tuple[int, float], list[Start]]:
    """The starts of each fire, the earliest first. One without a due time counts for the job's last due time
    before it: right as long as it is less than a period late."""
    found: defaultdict[tuple[int, float], list[Start]] = defaultdict(list)
    for start in sorted(starts, key=lambda start: start.at):
        due = grid.last_before(start.job, start.at) if start.due is None else start.due
        found[start.job, round(due, 3)].append(start)
    return dict(found)


@dataclass(frozen=True)
class Counted:
    """A stretch of fires."""

    due: int
    lost: int
    """Never started, as long as was waited."""
    doubled: int
    """Starts beyond the first of each fire."""
    starts: int
    p50_s: float
    p99_s: float
    worst_s: float

    @property
    def holds(self) -> bool:
        return not self.lost and not self.doubled and self.p99_s <= HOLDS_UNTIL


def counted(starts: Iterable[Start], grid: Grid, since: float, until: float) -> Counted:
    """Of the fires with `since` <= due < `until`."""
    found = by_fire(starts, grid)
    due = grid.due(since, until)
    begun = [found[fire] for fire in due if fire in found]
    late = [each[0].at - fire[1] for fire, each in found.items() if fire in due]
    total = sum(len(each) for each in begun)
    return Counted(
        due=len(due),
        lost=len(due) - len(begun),
        doubled=total - len(begun),
        starts=total,
        p50_s=quantile(late, 0.5),
        p99_s=quantile(late, 0.99),
        worst_s=quantile(late, 1.0),
    )


def paced(starts: Iterable[Start], grid: Grid, since: float, until: float) -> Counted:
    """The same for a peer that counts each interval from the last run, and so keeps to no grid: a start is as late as
    it comes more than a period after the job's last one. Less than half a period after it is one too many; after
    more than one and a half some are missing."""
    moments: defaultdict[int, list[float]] = defaultdict(list)
    for start in starts:
        if start.at < until:
            moments[start.job].append(start.at)
    total = lost = doubled = 0
    late = []
    in_window = math.ceil((until - since) / grid.period)
    for times in moments.values():
        times.sort()
        for before, at in itertools.pairwise(times):
            if at >= since:
                periods = round((at - before) / grid.period)
                total += 1
                doubled += periods < 1
                lost += max(0, periods - 1)
                late += [max(0.0, at - before - grid.period)] if periods == 1 else []
        lost += min(max(0, math.ceil((until - times[-1]) / grid.period - 1.5)), in_window)
    never = grid.jobs - len(moments)
    due = round(grid.jobs * (until - since) / grid.period)
    lost += round(never * (until - since) / grid.period)
    return Counted(
        due=due,
        lost=min(due, lost),
        doubled=doubled,
        starts=total,
        p50_s=quantile(late, 0.5),
        p99_s=quantile(late, 0.99),
        worst_s=quantile(late, 1.0),
    )


def whole(starts: Iterable[Start], grid: Grid, since: float, until: float, drifts: bool) -> bool:
    """Whether all that was due from `since` up to `until` has started, be it later than that."""
    if not drifts:
        return grid.due(since, until) <= by_fire(starts, grid).keys()
    recent = {start.job for start in starts if start.at >= until - grid.period}
    return len(recent) == grid.jobs


def longest_gap(starts: Iterable[Start], since: float, until: float) -> float:
    """The longest time without a start."""
    moments = [since, *sorted(start.at for start in starts if since < start.at < until), until]
    return max(after - before for before, after in itertools.pairwise(moments))


def started(starts: Iterable[Start], since: float, until: float) -> int:
    """How many starts there were in that time."""
    return sum(since <= start.at < until for start in starts)


def busiest(starts: Iterable[Start], pids: Sequence[int]) -> int:
    """The process with the most starts, among these."""
    number = dict.fromkeys(pids, 0)
    for start in starts:
        if start.pid in number:
            number[start.pid] += 1
    return max(number, key=lambda pid: number[pid])


def medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each figure over several rounds; what is not a number stays as the last round has it. A rate holds if it did
    in most rounds."""
    found = dict(rounds[-1])
    for name, value in rounds[-1].items():
        values = [each[name] for each in rounds if each.get(name) is not None]
        if isinstance(value, bool):
            found[name] = sum(values) * 2 > len(values)
        elif isinstance(value, Mapping):
            found[name] = medians(values)
        elif isinstance(value, int | float) and values:
            found[name] = statistics.median(values)
    return found
