"""Definitions made by hand: over HTTP, by the command line, in the dashboard, from Python. One way for all of them.

An edit is prepared first, which checks everything and says what would change, and then written if the definition is
still the one that it was prepared from (docs/decisions/0060-definitions-made-by-hand.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

from fencepost.errors import ConfigurationError, Conflict, UsageError
from fencepost.model import Job, JobRecord, checked_id
from fencepost.model.triggers import Trigger
from fencepost.model.triggers.following import MOST_GENERATIONS, MOST_PARENTS, parents_of
from fencepost.runs.tasks import Registry, Task
from fencepost.scheduler.after import CircleOfJobs, refuse_circle
from fencepost.scheduler.written import WORDS, check_words, job_from
from fencepost.settings import did_you_mean
from fencepost.store.base import ChangeJob, Outcome, PutJob, Readable, Store
from fencepost.store.rereading import readable_job
from fencepost.store.rules.definitions import difference, version_of

SHOWN = 10
"""Fires before and after that a dry run shows."""
MOST_NAMED = 30
"""Tasks that a refusal lists."""


class ChangedMeanwhile(Conflict):
    """The definition is not the one that the caller has seen."""


@dataclass(frozen=True)
class Edit:
    """What a change would do."""

    job: Job
    before: JobRecord | None
    now: datetime

    @property
    def outcome(self) -> Outcome:
        if self.before is None:
            return "created"
        return "unchanged" if self.before.fingerprint == self.job.fingerprint else "changed"

    @property
    def version(self) -> str:
        return version_of(self.before)

    @property
    def difference(self) -> dict[str, Any]:
        return difference(self.before.job if self.before else None, self.job)

    @cached_property
    def fires_before(self) -> list[datetime]:
        return coming(_in_force(self.before), self.now)

    @cached_property
    def fires_after(self) -> list[datetime]:
        """An unchanged trigger keeps its anchor."""
        if self.before is not None and self.before.job.trigger == self.job.trigger:
            return self.fires_before
        return coming(self.job.trigger and self.job.trigger.resolved(self.now), self.now)


def coming(trigger: Trigger | None, now: datetime, count: int = SHOWN) -> list[datetime]:
    if trigger is None or trigger.foreign is not None:
        return []
    return list(islice(trigger.after(now), count))


Build = Callable[[Task | str, str, Any, Mapping[str, Any]], Job]
"""Of a task, or its name, an id, a trigger, or None, and policies: as `@scheduler.job` makes it."""


class Editor:
    def __init__(self, registry: Registry, build: Build, folder: Path) -> None:
        """`registry`: the tasks of this process. `folder`: where calendars are described."""
        self._registry = registry
        self._build = build
        self._folder = folder

    async def prepare(
        self, store: Store, id: str, given: Mapping[str, Any], *, whole: bool, tasks: Set[str] | None = None
    ) -> Edit:
        """Check a definition, or (`whole` False) a change of the one that is stored. `tasks`: that the caller may name;
        None: all."""
        check_words(given, WORDS)
        before = await readable_job(store, checked_id(id, "job id"))
        if before is None and not whole:
            raise UsageError(f"there is no job {id!r} in the store")
        roster = await store.roster()
        wanted = given.get("task") or (before.job.target if before is not None else id)
        lanes = (lane for replica in roster.replicas for lane in replica.targets)
        offered = {name for lane in lanes if (name := lane.partition("@")[0])}
        task = await self._task(store, wanted, offered, before, tasks)
        base = before.job if before is not None and not whole else None
        job = job_from(given, partial(self._build, task, id), self._folder, base)
        if before is not None and before.job.engine is not None and before.job.target == job.target:
            job = replace(job, engine=before.job.engine, engine_options=before.job.engine_options)
        refuse_circle(job, await _jobs_before(store, job))
        return Edit(job, before, roster.now)

    async def _task(
        self, store: Store, name: object, offered: set[str], before: JobRecord | None, tasks: Set[str] | None
    ) -> Task | str:
        """That of this process; else one that a live replica offers, or that the job has already."""
        if not isinstance(name, str):
            raise UsageError(f"task must be a name, not {name!r:.60}")
        has_it = before is not None and before.job.target == name
        may_name = has_it or tasks is None or name in tasks
        if may_name and name in self._registry:
            return self._registry.get(name)
        if may_name and (has_it or name in offered or await _is_stored(store, name)):
            return name
        known = sorted(offered if tasks is None else offered & tasks)
        more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
        raise UsageError(
            f"no live replica has the task {name!r}{did_you_mean(name, known)}; "
            f"known: {', '.join(known[:MOST_NAMED]) or 'none'}{more}"
        )


async def write(
    store: Store, edit: Edit, by: str, expected: str | None, revision: int | None = None
) -> Outcome:
    """`expected`: of the definition that the caller has seen; None: the one that the edit was prepared from."""
    wanted = edit.version if expected is None else expected
    put = PutJob(edit.job, revision, by, source="api", expected=wanted)
    [answer] = await store.put_jobs([put])
    if answer.outcome == "changed meanwhile":
        raise ChangedMeanwhile(await changed_meanwhile(store, edit.job.id))
    if answer.outcome == "cycle":
        raise CircleOfJobs(answer.detail.split(" → "))
    if answer.refused:
        raise Conflict(f"job {edit.job.id!r} was not changed: {answer.outcome}")
    return answer.outcome


async def remove(store: Store, id: str, by: str, expected: str | None, note: str = "") -> JobRecord:
    removed = await store.change_job(ChangeJob(id, "remove", note, by, expected=expected))
    if removed is None:
        if await readable_job(store, id) is None:
            raise UsageError(f"there is no job {id!r} in the store")
        raise ChangedMeanwhile(await changed_meanwhile(store, id))
    return removed


async def changed_meanwhile(store: Readable, id: str) -> str:
    """Who it was, for the one who comes too late."""
    record = await readable_job(store, id)
    if record is None:
        return f"there is no job {id!r} any more, or there was none; read it again"
    last = next((event for event in reversed(await store.history(id)) if event.after is not None), None)
    who = f" by {last.by}" if last is not None and last.by else ""
    return f"job {id!r} has been changed since you read it{who}; its version is {record.fingerprint} now: read it again"


async def _jobs_before(store: Store, job: Job) -> dict[str, Job]:
    """Those that it follows, and so on."""
    found: dict[str, Job] = {}
    wanted = asked = set(parents_of(job.trigger))
    while wanted and len(asked) < MOST_GENERATIONS * MOST_PARENTS:
        found |= {record.id: record.job for record in await store.jobs(sorted(wanted))}
        wanted = {id for each in found.values() for id in parents_of(each.trigger)} - asked
        asked = asked | wanted
    return found


async def _is_stored(store: Store, name: str) -> bool:
    """Whether the job that was declared with the task is there: its replicas may be down just now."""
    try:
        records = await store.jobs([checked_id(name, "task")])
    except ConfigurationError:
        return False
    return any(record.job.target == name for record in records)


def _in_force(record: JobRecord | None) -> Trigger | None:
    return record.segments[-1].trigger if record is not None and record.segments else None
