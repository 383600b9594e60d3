"""The code compared with the store: what a replica that starts with this code would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fencepost.insight.doctor.finding import Finding, ok, the_first, warning
from fencepost.insight.doctor.subject import Subject
from fencepost.model import Job, JobRecord, ReplicaRecord, job_to_json
from fencepost.store.base import PutJob
from fencepost.store.rules.definitions import definition_outcome

SHOW = "`fencepost jobs` lists what is stored"
OTHER_NAMESPACE = (
    "give each application a namespace of its own (FENCEPOST_NAMESPACE), or one of the jobs another id="
)


def declared(target: str, scheduler: Subject) -> Iterator[Finding]:
    number = len(scheduler.jobs)
    if number:
        yield ok(f"{target} can be imported and declares {number} job{'s' * (number > 1)}")
    else:
        yield warning(
            f"{target} can be imported, but declares no jobs", "import the modules that declare them"
        )


def compared(
    target: str, scheduler: Subject, records: Sequence[JobRecord], live: Sequence[ReplicaRecord]
) -> Iterator[Finding]:
    """`live`: the replicas that are up. The store's own rule decides what would happen to each definition."""
    stored, revision = {record.id: record for record in records}, scheduler.settings.revision

    def knowing(task: str) -> list[str]:
        return [replica.id for replica in live if task in replica.targets]

    outcomes = {
        id: definition_outcome(
            stored.get(id), PutJob(job, revision, origin=scheduler.origin_of(id)), live, knowing
        )
        for id, job in sorted(scheduler.jobs.items())
    }
    new = [id for id, outcome in outcomes.items() if outcome == "created"]
    if new:
        yield ok(f"not stored yet: {_named(new)}; they are when a replica with this code starts")
    if outcomes and set(outcomes.values()) == {"unchanged"}:
        yield ok("all of them are stored as declared")
    changes = (
        _change(scheduler.jobs[id], stored[id], outcome, revision)
        for id, outcome in outcomes.items()
        if outcome not in ("created", "unchanged")
    )
    yield from the_first(changes, SHOW)
    yield from _not_declared(target, scheduler.jobs, records)


def _change(job: Job, record: JobRecord, outcome: str, revision: int | None) -> Finding:
    here, there = job_to_json(job), job_to_json(record.job)
    differs = (
        f"{job.id} is stored with another {', '.join(name for name in here if here[name] != there[name])}"
    )
    if outcome == "other origin":
        what = f"{job.id} is declared by replicas of another application that are up, from {record.origin}"
        return warning(f"{what}: this definition is refused", OTHER_NAMESPACE)
    if outcome == "made by hand":
        what = f"{differs}, which was made by hand and holds: this code does not change it"
        return warning(what, f"put it into the code, or `fencepost jobs rm {job.id}` before the start")
    if outcome == "older revision":
        what = (
            f"{differs}, of revision {record.revision}: this code, of revision {revision}, does not change it"
        )
        return warning(what, "deploy the newer code, or raise FENCEPOST_REVISION to go back")
    if outcome == "flip back":
        what = f"{differs}, and replicas that are up declare that one: this older definition is refused"
        return warning(what, "stop those replicas first, or set FENCEPOST_REVISION to say which is newer")
    return warning(
        f"{differs}: a replica that starts with this code changes it", "right if that is to be deployed"
    )


def _not_declared(target: str, jobs: Mapping[str, Job], records: Sequence[JobRecord]) -> Iterator[Finding]:
    tasks = {job.target for job in jobs.values()}
    others = [record for record in records if record.id not in jobs]
    added = [record.id for record in others if record.job.target in tasks]
    if added:
        yield ok(f"added for its tasks at run time: {_named(added)}")
    strange = [record.id for record in others if record.job.target not in tasks]
    if strange:
        what = f"stored, and {target} does not know the task: {_named(strange)}"
        yield warning(what, "right if other code runs them; else `fencepost jobs rm ID`")


def _named(ids: Sequence[str], most: int = 10) -> str:
    rest = len(ids) - most
    return ", ".join(sorted(ids)[:most]) + (f" and {rest} more" if rest > 0 else "")
