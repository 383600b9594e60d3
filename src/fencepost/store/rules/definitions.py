"""Which definition of a job holds, and where it comes from: pure rules, shared by every store.

A definition has a *source*: code declares it, or a person made it (`api`). One that code declares has an *origin* as
well: which application's code (docs/decisions/0028-origins-and-sources.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fencepost.model import Job, JobRecord, Json, ReplicaRecord, Rival, changed, job_to_json
from fencepost.store.base import NO_JOB, Outcome, PutJob

LONGEST_KEPT = 2_000
"""Characters of JSON of one field that the history keeps."""

Knowing = Callable[[str], Collection[str]]
"""The replicas that know a task."""


def definition_outcome(
    existing: JobRecord | None, put: PutJob, live: Collection[ReplicaRecord], knowing: Knowing
) -> Outcome:
    """What writing a definition does. Code does not undo what was made by hand, nor replace what another application
    declares that is at work. During a rolling deploy old and new replicas start in any order: a revision decides;
    without one the last start wins, but a definition that has been replaced does not come back while a live replica
    declares its successor, unless a caller asks for it."""
    if put.expected is not None and version_of(existing) not in (put.expected, put.job.fingerprint):
        return "changed meanwhile"
    if existing is None:
        return "created"
    if existing.removed_at:
        return "changed"
    same = existing.fingerprint == put.job.fingerprint
    if put.source == "code" and existing.source == "api":
        return "unchanged" if same else "made by hand"
    if put.source == "code" and _is_anothers(existing, put, live, knowing):
        return "other origin"
    if same:
        return "unchanged"
    if not put.replace:
        return "exists"
    if existing.revision is not None and put.revision is not None:
        return "changed" if put.revision >= existing.revision else "older revision"
    others = [each for each in live if each.id in existing.declared_by and each.id != put.by]
    asked_for = put.source == "api" or put.chosen
    if put.job.fingerprint in existing.earlier and others and not asked_for:
        return "flip back"
    return "changed"


def version_of(record: JobRecord | None) -> str:
    """What a caller compares to know whether the definition has changed since it was read."""
    return NO_JOB if record is None or record.removed_at else record.fingerprint


def difference(before: Job | None, after: Job) -> dict[str, Any]:
    """What a change of definition leaves in the history: the fields that differ, before and after."""
    old, new = ({} if before is None else job_to_json(before)), job_to_json(after)
    names = [name for name in {**old, **new} if name != "id" and old.get(name) != new.get(name)]
    return {
        "before": None if before is None else {name: _bounded(old.get(name)) for name in names},
        "after": {name: _bounded(new.get(name)) for name in names},
    }


def _bounded(value: Json) -> Json:
    size = len(json.dumps(value))
    return value if size <= LONGEST_KEPT else f"({size} bytes)"


def _is_anothers(existing: JobRecord, put: PutJob, live: Collection[ReplicaRecord], knowing: Knowing) -> bool:
    """Whether the job is of another origin, and replicas of that are at work: live ones that know its task, and are not
    known to have it from the new origin. Where a deploy moves a job, each new replica is refused and noted, and the
    first to ask after the last old one has gone takes over."""
    if put.origin is None or not put.origin.differs_from(existing.origin):
        return False
    moved = {rival.replica for rival in existing.rivals if not put.origin.differs_from(rival.origin)}
    known = knowing(existing.job.lane)
    return any(
        replica.id in known and not replica.draining
        for replica in live
        if replica.id != put.by and replica.id not in moved
    )


def stands(existing: JobRecord | None, put: PutJob) -> bool:
    """Whether there is nothing to write. At every start a replica declares all its jobs, and nearly always all of
    them stand. Who declares a definition matters only if there has been another one, that might come back."""
    return (
        existing is not None
        and existing.fingerprint == put.job.fingerprint
        and existing.removed_at is None
        and (put.revision is None or put.revision == existing.revision)
        and (not existing.earlier or _is_declared(existing, put))
        and (put.source == "api" or _is_from_there(existing, put))
    )


def _is_declared(existing: JobRecord, put: PutJob) -> bool:
    return not put.chosen and (not put.by or put.by in existing.declared_by)


def _is_from_there(existing: JobRecord, put: PutJob) -> bool:
    if existing.source != "code":
        return False
    if put.origin is None:
        return True
    return existing.origin is not None and not put.origin.differs_from(existing.origin)


def declarers(
    existing: JobRecord, put: PutJob, outcome: Outcome, replicas: Collection[str], knowing: Knowing
) -> tuple[str, ...]:
    """The replicas that declare the definition once it is taken. What an application chose while it ran holds for all
    of its processes, from this moment on: they may read it only after the one that chose it has ended, and a replica
    that starts in between must not bring the definition of its code back."""
    before = () if outcome == "changed" else existing.declared_by
    peers = sorted(knowing(put.job.lane)) if put.chosen else ()
    return tuple(dict.fromkeys(each for each in (*before, put.by, *peers) if each in replicas))


def provenance(
    existing: JobRecord, put: PutJob, outcome: Outcome, replicas: Collection[str]
) -> dict[str, Any]:
    """Where a definition that was taken comes from. One made by hand remembers the code that it replaces."""
    if put.source == "api":
        if outcome == "unchanged":
            return {}
        return {"source": "api", "origin": None if existing.removed_at else existing.origin, "rivals": ()}
    origin = put.origin or (existing.origin if outcome == "unchanged" else None)
    rivals = [
        rival
        for rival in existing.rivals
        if rival.replica in replicas and rival.replica != put.by and rival.origin.differs_from(origin)
    ]
    return {"source": "code", "origin": origin, "rivals": tuple(rivals)}


def with_refusal(
    record: JobRecord, put: PutJob, outcome: Outcome, replicas: Mapping[str, ReplicaRecord]
) -> JobRecord:
    """With the note that the code of a live replica says otherwise."""
    if put.origin is None:
        return record
    if outcome == "made by hand":
        return changed(record, origin=put.origin)
    rival = Rival(put.by, put.origin)
    if not put.origin.differs_from(record.origin) or put.by not in replicas or rival in record.rivals:
        return record
    others = (each for each in record.rivals if each.replica in replicas and each.replica != put.by)
    return changed(record, rivals=(*others, rival))
