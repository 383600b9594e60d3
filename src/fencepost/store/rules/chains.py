"""Chains: a job that follows others gets a fire when the last of its parents has ended theirs of the same due time.

The child's key is the parent's with another job: `load@…` follows `extract@…`, `load!name` follows `extract!name`. So
it exists once, however often it is asked for, and a chain is all fires with one ending. It is added in the step in
which the parent's fire becomes final. Where a parent's fire did not run, or did not succeed, it is closed instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fencepost.clock import Moment
from fencepost.model import CATCH_UP_LIMIT, FireRecord, Job, JobRecord, Json, Reason, State, changed
from fencepost.model.triggers.following import After, circle_of, parents_of
from fencepost.store.rows import Rows
from fencepost.store.rules.debts import Debt, owe, payable
from fencepost.store.rules.decide import Closing
from fencepost.store.rules.ledger import close, keep, later


def follow(rows: Rows, at: Moment, fire: FireRecord, row: str) -> None:
    """This fire is final: its children's turn. `row`: the key of the row it is in, perhaps with others."""
    record = rows.jobs.get(fire.job_id)
    if record is None or not record.children:
        return
    rows.widen()
    rows.preload(at.wall, jobs=record.children)
    for id in record.children:
        _follow_by(rows, at, id, fire, row)


def catch_up(rows: Rows, at: Moment) -> None:
    """What could not be done because the row of a job could not be read."""
    for debt in payable(rows):
        record, fire = rows.jobs.get(debt.job_id), rows.fires.get(debt.fire)
        if record is not None and fire is not None and fire.state.final:
            children = record.children if fire.job_id == record.id else (record.id,)
            for id in [each for each in children if _followed_then(rows, each, fire)]:
                _follow_by(rows, at, id, fire, fire.key)


def _followed_then(rows: Rows, id: str, fire: FireRecord) -> bool:
    """Whether the job had its present trigger when the fire ended."""
    defined = [event.at for event in rows.jobs.events(id) if event.kind == "defined"]
    return fire.finished_at is not None and (not defined or defined[-1] <= fire.finished_at)


def _follow_by(rows: Rows, at: Moment, id: str, fire: FireRecord, row: str) -> None:
    child = rows.jobs.get(id)
    if rows.jobs.aside(id):
        if fire.attempt:  # of one that never ran it is owed nothing: the parent's row says why
            owe(rows, at, Debt(id, fire=fire.key))
        return
    if child is None or child.removed_at is not None:
        return
    trigger = child.job.trigger
    if isinstance(trigger, After) and fire.job_id in trigger.parents:
        _follow(rows, at, child, trigger, fire, row)


def repeats_harmlessly(rows: Rows, at: Moment, record: JobRecord) -> bool:
    """Whether the job and all that follow it may run again after a crash. One that cannot be read may not."""
    if rows.jobs.aside(record.id) or record.job.after_crash == "record":
        return False
    if record.children:
        rows.widen()
        rows.preload(at.wall, jobs=record.children)
    if any(rows.jobs.aside(id) for id in record.children):
        return False
    children = [child for child in map(rows.jobs.get, record.children) if child is not None]
    followers = [child for child in children if record.id in parents_of(child.job.trigger)]
    return all(child.removed_at or repeats_harmlessly(rows, at, child) for child in followers)


def _follow(rows: Rows, at: Moment, child: JobRecord, trigger: After, fire: FireRecord, row: str) -> None:
    ending = fire.key[len(fire.job_id) :]
    key = child.id + ending
    if rows.fires.get(key) is not None or rows.fires.is_broken(key) or _is_in_stretch(rows, at, child, fire):
        return
    only_parent = len(trigger.parents) == 1
    if not lets_go(trigger, fire):
        # Of several parents each names its own fire, so that rows never join: the next one looks for this key.
        if (
            fire.scheduled
            and (fire.count == 1 or only_parent)
            and not _owes(child, fire.due_at, fire.last_due)
        ):
            blank = changed(_blank(at, child, fire, key), count=fire.count, last_due_at=fire.last_due_at)
            refers_to = row if only_parent else fire.key
            _close(rows, at, child, blank, Reason.PARENT, refers_to)
        return
    others = [rows.fires.get(parent + ending) for parent in trigger.parents if parent != fire.job_id]
    if all(other is not None and other.state.final and lets_go(trigger, other) for other in others):
        _add(rows, at, child, _blank(at, child, fire, key))


def _is_in_stretch(rows: Rows, at: Moment, child: JobRecord, fire: FireRecord) -> bool:
    """Whether a row of many has it, from when the job had a calendar of its own."""
    if not fire.scheduled:
        return False
    tail = rows.fires.get(child.tail) if child.tail else None
    stretches = [each for each in rows.fires.due(child.id, at.wall) if each.count > 1]
    return any(each.due_at <= fire.due_at <= each.last_due for each in (*stretches, *filter(None, [tail])))


def _owes(child: JobRecord, first: datetime, last: datetime) -> bool:
    """Whether a calendar that the job had before may have fires between these that are not planned yet. They will have
    rows of their own; one that a parent's fire leaves there must not stand for them."""
    return any(
        each.until is not None and each.cursor < last and first <= each.until for each in child.segments
    )


def lets_go(trigger: After, fire: FireRecord) -> bool:
    """Whether a final fire of a parent is what its child waits for."""
    if trigger.when == "succeeded":
        return fire.state is State.SUCCEEDED
    return fire.attempt >= 1


def _blank(at: Moment, child: JobRecord, fire: FireRecord, key: str) -> FireRecord:
    # Due with its parent, also after one by hand: if that fell due before the store lost data, both may have run.
    due_at = fire.due_at if fire.scheduled else min(fire.due_at, at.wall)
    by = "" if fire.scheduled else f"after {fire.key}"
    blank = FireRecord(key, child.id, due_at, scheduled=fire.scheduled, by=by)
    return changed(blank, repeats=_repeated(child, fire))


def _repeated(child: JobRecord, fire: FireRecord) -> Mapping[str, Json] | None:
    """After a retry: the child's own fire of that due time, with the same due time."""
    if fire.repeats is None:
        return None
    keys = {name: key for name, key in fire.repeats.items() if name in ("key", "effect_key")}
    return {**fire.repeats, **{name: child.id + key[len(fire.job_id) :] for name, key in keys.items()}}


def _add(rows: Rows, at: Moment, child: JobRecord, fire: FireRecord) -> None:
    """It waits for its turn: it was due with its parents, so no misfire policy looks at it."""
    waiting = [each for each in rows.fires.due(child.id, at.wall) if each.state is State.QUEUED]
    most = max(CATCH_UP_LIMIT, child.job.overlap.limit)
    if rows.targets.get(child.job.lane).orphaned:
        return _close(rows, at, child, fire, child.job.unclaimable, None, State.MISSED)
    if fire.scheduled and len(waiting) >= most:
        return _close(rows, at, child, fire, Reason.QUEUE_FULL, waiting[0].key)
    if fire.scheduled:
        rows.fires.put(changed(fire, state=State.QUEUED))
        child = changed(child, decided_through=later(child, fire.due_at))
    else:
        rows.fires.put(fire)
    keep(rows, at, child)
    rows.notify = True


def _close(
    rows: Rows,
    at: Moment,
    child: JobRecord,
    fire: FireRecord,
    why: str,
    refers_to: str | None,
    state: State = State.SKIPPED,
) -> None:
    """One that is not to run, as a row of its own or with its neighbours."""
    rows.fires.put(fire)
    tail = rows.fires.get(child.tail) if child.tail else None
    if tail is not None and _owes(child, tail.last_due, fire.due_at):
        child = changed(child, tail=None)
    keep(rows, at, close(rows, at, child, Closing(fire, state, why, refers_to)))


# --- definitions ----------------------------------------------------------------------------------------------


def cycle(rows: Rows, job: Job) -> list[str]:
    """The jobs that would follow each other in a circle, if this were stored; none: it may be."""

    def parents(id: str) -> tuple[str, ...]:
        record = rows.jobs.get(id)
        return parents_of(record.job.trigger) if record is not None and not record.removed_at else ()

    return circle_of(job.id, job.trigger, parents)


def unreadable_parent(rows: Rows, job: Job) -> str | None:
    """One of those that this would follow. It is not stored then: such a parent cannot be given a child, and whether
    there would be a circle is not known."""
    parents = parents_of(job.trigger)
    return next((id for id in parents if rows.jobs.get(id) is None and rows.jobs.aside(id)), None)


def declare(rows: Rows, at: Moment, id: str, before: Job | None, after: Job | None) -> None:
    """A job follows others than before: its parents are told. One that is not stored yet gets a row, marked as removed,
    so that it knows when it is declared."""
    old, new = parents_of(before.trigger if before else None), parents_of(after.trigger if after else None)
    for parent in dict.fromkeys((*old, *new)):
        record = rows.jobs.get(parent)
        if record is None:
            if rows.jobs.aside(parent) or parent not in new or after is None:
                continue
            blank = Job(parent, after.target)
            record = JobRecord(blank, blank.fingerprint, at.wall, at.wall, removed_at=at.wall)
        children = tuple(each for each in record.children if each != id)
        if parent in new:
            children = (*children, id)
        if children != record.children:
            keep(rows, at, changed(record, children=children))


def followers(rows: Rows, id: str) -> tuple[str, ...]:
    """Found by reading all jobs: where a row that named them cannot be read."""
    found = (each for each in rows.jobs.every() if not each.removed_at and id in parents_of(each.job.trigger))
    return tuple(sorted(each.id for each in found))
