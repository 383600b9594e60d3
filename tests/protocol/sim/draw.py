"""What a seed draws: the jobs with their policies, the releases of the application, and which faults there are."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fencepost.model import Job, Overlap
from fencepost.model.retry import Retry
from fencepost.model.triggers import Calendar, Every, Trigger, at, cron, every

TASKS = ("alpha", "beta", "gamma")


@dataclass(frozen=True)
class Release:
    """A version of the application: the tasks it knows and the jobs it declares."""

    tasks: tuple[str, ...]
    jobs: Mapping[str, Job]
    revision: int | None = None
    origin: str | None = None
    """Where its code is. None: it cannot say, as earlier releases of ours."""


@dataclass(frozen=True)
class Mix:
    """What is drawn once for a seed. Seeds differ on purpose: a calm one with a single kind of fault shows what a
    storm of all kinds would hide, and the other way round."""

    faults: Sequence[str]
    faults_per_second: float
    chores: Sequence[str]
    """What an administrator does meanwhile."""
    chores_per_second: float
    seconds: float
    worst_moments: float
    """How often a replica is paused right after a commit, before it sees the reply."""
    slots: int
    proof_of_death: bool
    keeps_writes: bool
    """Whether the store keeps what it has acknowledged when it restarts."""
    steady_steps: bool
    """Whether the store's steady clock steps together with its wall clock."""
    revisions: str
    """Whether releases carry a revision: all, none, or some."""


def draw_mix(chance: random.Random, faults: Sequence[str], chores: Sequence[str]) -> Mix:
    style = chance.random()
    if style < 0.2:
        some = chance.sample(faults, 1)
    elif style < 0.35:
        # What follows from a loss of data takes a while and is easily upset by other faults.
        some = ["lose data", *chance.sample(faults, 2)]
    elif style < 0.8:
        some = [kind for kind in faults if chance.random() < 0.3] or ["kill"]
    else:
        some = list(faults)
    return Mix(
        faults=some,
        faults_per_second=chance.choice([0.2, 0.5, 1.0]),
        chores=[kind for kind in chores if chance.random() < 0.6] or ["definition"],
        chores_per_second=chance.choice([0.05, 0.3, 1.0]),
        seconds=chance.uniform(40.0, 80.0),
        worst_moments=chance.choice([0.0, 0.01, 0.05]),
        slots=chance.choice([1, 2, 4, 4]),
        proof_of_death=chance.random() < 0.3,
        keeps_writes="lose data" not in some and chance.random() < 0.7,
        steady_steps=chance.random() < 0.6,
        revisions=chance.choice(["all", "all", "none", "some"]),
    )


def draw_release(chance: random.Random, revisions: str, now: datetime) -> Release:
    jobs = {id: draw_job(chance, id, now) for id in (f"job{n}" for n in range(chance.randint(3, 5)))}
    origin = chance.choice([None, "here", "here"])
    return Release(TASKS, jobs, None if revisions == "none" else 1, origin)


def draw_next_release(
    chance: random.Random, number: int, last: Release, revisions: str, now: datetime
) -> Release:
    """Some definitions are changed, one is new, perhaps a task is gone with its jobs, perhaps all code has moved."""
    jobs = {
        id: draw_change(chance, job, now) if chance.random() < 0.4 else job for id, job in last.jobs.items()
    }
    added = draw_job(chance, f"job{len(jobs)}", now)
    jobs[added.id] = added
    tasks: tuple[str, ...] = TASKS
    if chance.random() < 0.6:
        gone = chance.choice(TASKS)
        tasks = tuple(task for task in TASKS if task != gone)
        jobs = {id: job for id, job in jobs.items() if job.target != gone}
    carries = revisions == "all" or (revisions == "some" and chance.random() < 0.5)
    origin = chance.choice([last.origin, last.origin, "here", "there"])
    return Release(tasks, jobs, number if carries else None, origin)


def draw_job(chance: random.Random, id: str, now: datetime) -> Job:
    return Job(
        id=id,
        target=chance.choice(TASKS),
        trigger=draw_trigger(chance, now),
        args={"longest": chance.choice([0.2, 1.0, 3.0, 8.0]), "fails": chance.choice([0.0, 0.3, 0.6])},
        overlap=draw_overlap(chance),
        misfire=chance.choice(["latest", "latest", "all", "skip"]),
        misfire_after=timedelta(seconds=chance.choice([1.5, 4.0])),
        retry=draw_retry(chance),
        timeout=timedelta(seconds=2) if chance.random() < 0.2 else None,
        after_crash=chance.choice(["record", "rerun"]),
        crash_attempts=chance.choice([1, 2, 3]),
        execute_on=chance.choice(["any", "leader"]),
    )


def draw_change(chance: random.Random, job: Job, now: datetime) -> Job:
    """Another trigger, or another policy."""
    if chance.random() < 0.5:
        return replace(job, trigger=draw_trigger(chance, now))
    return replace(
        job,
        overlap=draw_overlap(chance),
        retry=draw_retry(chance),
        misfire=chance.choice(["latest", "all", "skip"]),
        after_crash=chance.choice(["record", "rerun"]),
    )


def draw_trigger(chance: random.Random, now: datetime) -> Trigger:
    if chance.random() < 0.12:
        # Some of it has passed, and some of that for longer than any `misfire_after` here.
        offsets = [chance.uniform(-9.0, 9.0) for _ in range(chance.choice([1, 1, 3, 6]))]
        return at(*(now + timedelta(milliseconds=round(1000 * offset)) for offset in offsets))
    if chance.random() < 0.15:
        return cron("* * * * *", tz=chance.choice(["UTC", "Asia/Kolkata", "America/New_York"]))
    return varied(every(seconds=chance.choice([1, 1, 2, 3, 5, 7])), now, chance.getstate()[1][-9:])


def varied(grid: Every, now: datetime, salt: object) -> Trigger:
    """Now and then a spread one, a combination, or one with a calendar. Draws nothing from the seed's own chance, so
    that whatever else it draws stays what it is."""
    chance = random.Random(f"{salt}")
    if chance.random() > 0.1:
        return grid
    begin = now.replace(microsecond=0)
    anchored = replace(grid, anchor=begin)
    others = every(seconds=chance.choice([2, 3, 4]), anchor=begin - timedelta(seconds=chance.randint(0, 3)))
    blackout = begin + timedelta(seconds=chance.randint(2, 20))
    frozen = Calendar(
        "sim", blackouts=[(blackout, blackout + timedelta(seconds=chance.randint(3, 15)), "freeze")]
    )
    kinds: list[Callable[[], Trigger]] = [
        lambda: grid.spread("5s", f"{salt}"),
        lambda: grid | others,
        lambda: anchored.on(frozen),
        lambda: (anchored | others) & every(seconds=2, anchor=begin),
        lambda: every(seconds=1, anchor=begin) - others,
    ]
    return chance.choice(kinds)()


def draw_overlap(chance: random.Random) -> Overlap:
    return Overlap.parse(chance.choice(["skip", "queue", "queue(3)", "allow(2)", "allow(3)"]))


def draw_retry(chance: random.Random) -> Retry | None:
    return Retry(attempts=chance.choice([2, 3]), first=0.2, cap=1.0) if chance.random() < 0.5 else None
