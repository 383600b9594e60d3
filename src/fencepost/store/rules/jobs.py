"""Definitions: declare, pause, resume and remove a job, and read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from fencepost.clock import Moment
from fencepost.model import (
    Gap,
    Job,
    JobEvent,
    JobRecord,
    Reason,
    ReplicaRecord,
    State,
    changed,
)
from fencepost.model.triggers import LATEST
from fencepost.store.base import (
    REFUSED,
    ChangeJob,
    JobPage,
    JobPut,
    PutJob,
)
from fencepost.store.rows import Rows
from fencepost.store.rules import chains, limits, notify_rules
from fencepost.store.rules.backfilling import CHANGES, Change
from fencepost.store.rules.calendars import MAX_GAPS_KEPT, ended, start_calendar, takes_effect
from fencepost.store.rules.decide import Closing
from fencepost.store.rules.definitions import (
    declarers,
    definition_outcome,
    difference,
    provenance,
    stands,
    with_refusal,
)
from fencepost.store.rules.ledger import close, finish, keep, later, let_go, refuse_aside
from fencepost.store.rules.targets import orphan_job
from fencepost.store.unreadable import salvaged_fire, salvaged_token

SHORTEST_PAGE = 50
"""Jobs read at once, however few are asked for."""


def put_jobs(rows: Rows, at: Moment, jobs: Sequence[PutJob]) -> tuple[JobPut, ...]:
    rows.preload(at.wall, records=[put.job.id for put in jobs])
    new = [put.job for put in jobs if not stands(rows.jobs.get(put.job.id), put)]
    ids = [job.id for job in new]
    rows.preload(at.wall, jobs=ids, targets=[job.lane for job in new], events=ids)
    replicas = {replica.id: replica for replica in rows.replicas.every()}
    return tuple(_put_job(rows, at, put, replicas) for put in jobs)


def _put_job(rows: Rows, at: Moment, put: PutJob, replicas: Mapping[str, ReplicaRecord]) -> JobPut:
    """`replicas`: all. One whose renewal is overdue at this very moment declares all the same."""
    job, existing = put.job, rows.jobs.get(put.job.id)
    if stands(existing, put):
        return JobPut(job.id, "unchanged")
    if rows.jobs.aside(job.id):
        return JobPut(job.id, "unreadable")
    if parent := chains.unreadable_parent(rows, job):
        return JobPut(job.id, "unreadable", detail=parent)
    if circle := chains.cycle(rows, job):
        return JobPut(job.id, "cycle", detail=" → ".join(reversed(circle)))
    live = [replica for replica in replicas.values() if replica.expires > at.steady]
    outcome = definition_outcome(existing, put, live, rows.targets.knowing)
    if outcome == "changed meanwhile":
        return JobPut(job.id, outcome)
    if existing is not None and outcome in REFUSED:
        noted = with_refusal(existing, put, outcome, replicas)
        if noted != existing:
            keep(rows, at, noted)
            rows.notify = True
        return JobPut(job.id, outcome, existing.origin)
    before = None if existing is None or existing.removed_at else existing.job
    if existing is None:
        existing = JobRecord(job, job.fingerprint, at.wall, at.wall)
    earlier = existing.earlier
    if outcome == "changed":
        earlier = (*(old for old in earlier if old != existing.fingerprint), existing.fingerprint)[-10:]
    record = changed(
        existing,
        job=job,
        fingerprint=job.fingerprint,
        revision=max((r for r in (existing.revision, put.revision) if r is not None), default=None),
        declared_by=declarers(existing, put, outcome, replicas, rows.targets.knowing),
        earlier=earlier,
        **provenance(existing, put, outcome, replicas),
    )
    if outcome != "unchanged":
        record = changed(record, changed_at=at.wall)
        is_new = before is None and put.source == "code"  # as at the first start of an application
        details = {} if is_new else {"by": put.by, **difference(before, job)}
        if outcome == "created" or existing.removed_at or job.trigger != existing.job.trigger:
            record = start_calendar(rows, at, record, details)
        else:
            event = JobEvent(record.id, at.wall, "changed", record.version, at.wall, token=record.token)
            rows.jobs.note(changed(event, **details))
    record = notify_rules.watched(notify_rules.stored_rules(rows), record)
    if outcome != "unchanged":
        chains.declare(rows, at, job.id, existing.job, job)
    if outcome != "unchanged" and (job.limits or existing.job.limits):
        record = changed(record, held_back=None)
        let_go(rows, at, limits.declare(rows, at, existing.job, job))
    if outcome != "unchanged" and rows.targets.get(job.lane).orphaned:
        orphan_job(rows, at, record)  # until a replica knows its task
    else:
        keep(rows, at, record)
    rows.notify = rows.notify or outcome != "unchanged"
    return JobPut(job.id, outcome)


def change_job(rows: Rows, at: Moment, change: ChangeJob) -> JobRecord | None:
    rows.preload(at.wall, jobs=[change.job_id])
    record, row = rows.jobs.get(change.job_id), rows.jobs.aside(change.job_id)
    if row is not None and not row.foreign:
        if change.kind != "remove":
            refuse_aside(rows, change.job_id)
        if change.if_undeclared or change.version is not None or change.expected is not None:
            return None  # whether that holds may be what cannot be read: left to a person
        record = _written_anew(rows, at, change.job_id)
    if record is None or record.removed_at or change.version not in (None, record.version):
        return None
    if change.expected not in (None, record.fingerprint):
        return None
    if change.if_undeclared and (record.source != "code" or _is_declared(rows, at, record)):
        return None
    steps: dict[str, Change] = {"pause": _pause, "resume": _resume, "remove": _remove, **CHANGES}
    record = steps[change.kind](rows, at, record, change)
    if record is None:
        return None
    keep(rows, at, record)
    rows.notify = True
    return record


def _is_declared(rows: Rows, at: Moment, record: JobRecord) -> bool:
    known = rows.targets.knowing(record.job.lane)
    return any(
        replica.id in known and replica.expires > at.steady and not replica.draining
        for replica in rows.replicas.every()
    )


def _pause(rows: Rows, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord:
    """A job that is paused stays so: its pause gets another reason or end only if the change names one."""
    gap, lasting = Gap(at.wall, change.until, change.note, change.by), record.pause_lasting(at.wall)
    if lasting is not None:
        until, note = change.until, change.note
        if not change.anew:
            until, note = until or lasting.until, note or lasting.note
        if lasting.covers(at.wall) and (until, note) == (lasting.until, lasting.note):
            return record
        gap = Gap(min(at.wall, lasting.since), until, note, change.by or lasting.by)
    since = later(record, at.wall)
    event = JobEvent(record.id, at.wall, "paused", record.version, since, token=record.token)
    rows.jobs.note(changed(event, until=gap.until, note=gap.note, by=gap.by))
    others = (each for each in _ended_by(at.wall, record.pauses) if each.since != gap.since)
    return changed(record, pauses=(*others, gap)[-MAX_GAPS_KEPT:])


def _resume(rows: Rows, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord:
    """End every pause that is not over. One may even seem to lie ahead, if the store's clock has stepped back."""
    if record.pause_lasting(at.wall) is None:
        return record
    pauses = _ended_by(at.wall, record.pauses)
    event = JobEvent(record.id, at.wall, "resumed", record.version, at.wall, token=record.token)
    rows.jobs.note(changed(event, by=change.by))
    return changed(record, pauses=pauses)


def _ended_by(moment: datetime, pauses: Sequence[Gap]) -> tuple[Gap, ...]:
    return tuple(changed(gap, until=min(moment, gap.until or moment)) for gap in pauses)


def _remove(rows: Rows, at: Moment, record: JobRecord, change: ChangeJob) -> JobRecord:
    """Running fires end as they end; everything else of the job is closed. The row stays as a tombstone:
    its token and high-water mark must outlive it."""
    record = _resume(rows, at, record, change)
    for fire in rows.fires.active(record.id):
        if fire.state is State.WAITING:
            record = record.after_run(finish(rows, at, fire, State.CANCELLED, Reason.REMOVED))
    since = takes_effect(rows, at, record)
    rows.fires.withdraw_planned(record.id, since)
    # All that is left, and not only what is due: a manual fire may seem to lie ahead.
    for fire in rows.fires.due(record.id, LATEST):
        record = close(rows, at, record, Closing(fire, State.CANCELLED, Reason.REMOVED))
    if record.job.limits:
        record = changed(record, held_back=None)
        let_go(rows, at, limits.declare(rows, at, record.job, None))
    event = JobEvent(record.id, at.wall, "removed", record.version, since, token=record.token)
    rows.jobs.note(changed(event, by=change.by, note=change.note))
    return changed(
        record,
        removed_at=at.wall,
        changed_at=at.wall,
        declared_by=(),
        rivals=(),
        backfills=tuple(
            changed(each, cancelled=True, cancelled_by=change.by) if each.is_open else each
            for each in record.backfills
        ),
        skips=(),
        segments=tuple(changed(each, removed=True) for each in ended(rows, record.segments, since)),
    )


def _written_anew(rows: Rows, at: Moment, id: str) -> JobRecord:
    """A job that cannot be read, as it is removed: what protects its fires and tokens outlives it. Where that
    cannot be read either, every fire up to now counts as decided, and tokens go on above all there can have
    been."""
    record = rows.jobs.get(id)
    if record is None:
        known = rows.jobs.salvage(id)
        job = Job(id, known.get("target") or id)
        version = max((event.version for event in rows.jobs.events(id)), default=0)
        token = known.get("token", salvaged_token(at, rows.leader.era))
        record = JobRecord(job, job.fingerprint, at.wall, at.wall, version=version, token=token)
        record = changed(record, decided_through=known.get("decided_through", at.wall))
        record = changed(record, children=chains.followers(rows, id))
    for fire in rows.fires.broken_live(id, at.wall):
        rows.fires.put(salvaged_fire(at, fire, Reason.UNREADABLE))
        record = changed(record, decided_through=later(record, fire.last_due))
    return record


def jobs(
    rows: Rows, at: Moment, ids: Sequence[str] | None = None, page: JobPage | None = None
) -> tuple[JobRecord, ...]:
    if page is not None:
        found = _page_of_jobs(rows, at, page)
    else:
        rows.preload(at.wall, records=ids or ())
        some = rows.jobs.every() if ids is None else map(rows.jobs.get, ids)
        found = [record for record in some if record is not None and not record.removed_at]
    names = dict.fromkeys(record.job.lane for record in found)
    rows.preload(at.wall, targets=list(names))
    targets = rows.targets.unknown() if ids is None and page is None else map(rows.targets.get, names)
    unknown = {target.name: target.unknown_since for target in targets if target.unknown_since}
    return tuple(
        changed(record, unknown_since=unknown[record.job.lane]) if record.job.lane in unknown else record
        for record in found
    )


def _page_of_jobs(rows: Rows, at: Moment, page: JobPage) -> list[JobRecord]:
    """Jobs that were removed are passed over, some at a time."""
    found: list[JobRecord] = []
    more = replace(page, limit=max(page.limit, SHORTEST_PAGE))
    while len(found) < page.limit and (ids := rows.jobs.ids(more)):
        rows.preload(at.wall, records=ids)
        some = [record for record in map(rows.jobs.get, ids) if record is not None]
        found += [record for record in some if not record.removed_at]
        more = replace(more, after=ids[-1])
    return found[: page.limit]
