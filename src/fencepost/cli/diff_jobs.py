"""`fencepost jobs diff TARGET`: where the code and the store differ, and what a start would do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from fencepost.cli.output import emit, say, table
from fencepost.cli.source import CommandSource, json_option, takes
from fencepost.insight.views.shapes import Shape
from fencepost.model import Job, JobRecord
from fencepost.replica.declaring import REASONS
from fencepost.scheduler.scheduler import Scheduler
from fencepost.store.base import PutJob, Roster, Store
from fencepost.store.rules.definitions import definition_outcome, difference

WOULD = {
    "created": "store it",
    "changed": "replace what is stored",
    "unchanged": "change nothing",
    "other origin": "leave what another application declares",
}
"""What a start does, by the outcome of its declaration."""


@click.command("diff")
@takes()
@json_option
def diff_jobs(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> int:
    """Show where TARGET and the store differ, and what a start of TARGET would do. Exits 1 if they differ."""
    source = CommandSource.of(words, (), url, namespace)
    if source.target is None and not source.scheduler.jobs:
        raise click.UsageError("Name the TARGET whose code is to be compared, as app:scheduler.")

    async def read(store: Store) -> list[Shape]:
        return list(_differences(source.scheduler, await store.jobs(), await store.roster()))

    found = source.ask(read)
    if as_json:
        emit(found)
    elif not found:
        say("the code and the store agree")
    else:
        table(("job", "differs", "in the store", "in the code", "a start would"), _rows(found))
    return int(bool(found))


def _differences(scheduler: Scheduler, records: tuple[JobRecord, ...], roster: Roster) -> Iterator[Shape]:
    stored = {record.id: record for record in records}
    declared = scheduler.jobs
    for id in sorted(stored.keys() | declared.keys()):
        record, job = stored.get(id), declared.get(id)
        if job is None:
            assert record is not None
            yield _only_stored(record, roster)
        elif record is None or record.fingerprint != job.fingerprint:
            yield _differing(scheduler, record, job, roster)


def _only_stored(record: JobRecord, roster: Roster) -> Shape:
    offered = any(record.job.lane in replica.targets for replica in roster.replicas)
    why = "leave it: it was made by hand" if record.source == "api" else "leave it: other code may declare it"
    if record.source == "code" and not offered:
        why = "leave it: no live replica knows its task; remove it with `fencepost jobs rm`"
    return {"job_id": record.id, "differs": "only in the store", "before": None, "after": None, "start": why}


def _differing(scheduler: Scheduler, record: JobRecord | None, job: Job, roster: Roster) -> Shape:
    put = PutJob(job, scheduler.settings.revision, origin=scheduler.origin_of(job.id))
    live = [replica for replica in roster.replicas if replica.id not in roster.overdue]

    def knowing(lane: str) -> list[str]:
        return [replica.id for replica in roster.replicas if lane in replica.targets]

    outcome = definition_outcome(record, put, live, knowing)
    start = WOULD.get(outcome) or f"be refused: {REASONS.get(outcome, outcome)}"
    shape = {"job_id": job.id, **difference(record.job if record else None, job), "start": start}
    return {**shape, "differs": "only in the code" if record is None else ", ".join(shape["after"])}


def _rows(found: list[Shape]) -> Iterator[tuple[Any, ...]]:
    for each in found:
        before, after = each["before"], each["after"]
        yield each["job_id"], each["differs"], _text(before), _text(after if before else None), each["start"]


def _text(fields: Shape | None) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in (fields or {}).items())
