"""Policies of jobs that only some seeds have. Drawn apart from everything else, so that the other seeds keep their
histories."""

from __future__ import annotations

import random
from dataclasses import replace

from fencepost.model import Job, Overlap
from fencepost.model.limits import Limit, limit
from fencepost.model.triggers.following import After
from tests.protocol.sim.draw import Release
from tests.protocol.sim.focus import Focus


def with_policies(seed: int, release: Release, focus: Focus) -> Release:
    """The same for every release of a seed: a job keeps what it was given, or gets it when it is new."""
    jobs = dict(release.jobs)
    if focus.has("replace", random.Random(f"{seed}:replacing").random()):
        jobs = {id: _replacing(seed, job) for id, job in jobs.items()}
    if focus.has("limits", random.Random(f"{seed}:limits").random()):
        jobs = {id: replace(job, limits=draw_limits(f"{seed}:{id}", 0.8)) for id, job in jobs.items()}
    if focus.has("priorities", random.Random(f"{seed}:priorities").random()):
        jobs = {id: replace(job, priority=draw_priority(f"{seed}:{id}")) for id, job in jobs.items()}
    if len(jobs) > 1 and focus.has("chains", random.Random(f"{seed}:chained").random()):
        jobs = _chained(jobs)
    return replace(release, jobs=jobs)


def _chained(jobs: dict[str, Job]) -> dict[str, Job]:
    """Some jobs follow others: one after the first, one after that, one after both."""
    first, *rest = sorted(jobs)
    parents = [(first,), rest[:1], (first, *rest[:1])]
    for number, (id, before) in enumerate(zip(rest, parents, strict=False)):
        jobs[id] = replace(jobs[id], trigger=After(tuple(before), "ended" if number == 1 else "succeeded"))
    return jobs


def draw_limits(salt: str, share: float = 0.4) -> tuple[Limit, ...]:
    chance = random.Random(f"{salt}:limits")
    if chance.random() >= share:
        return ()
    limits = []
    if chance.random() < 0.8:
        limits.append(limit("w", chance.choice([1, 1, 2]), full=chance.choice(["queue", "queue", "skip"])))
    if chance.random() < 0.4 or not limits:
        limits.append(limit("r", chance.choice(["2/5s", "3/4s"]), full=chance.choice(["queue", "skip"])))
    return tuple(limits)


def draw_priority(salt: str) -> int:
    return random.Random(f"{salt}:priority").choice([-3, 0, 0, 5])


def _replacing(seed: int, job: Job) -> Job:
    chance = random.Random(f"{seed}:replacing:{job.id}:{job.overlap}")
    return replace(job, overlap=Overlap.parse("replace")) if chance.random() < 0.6 else job
