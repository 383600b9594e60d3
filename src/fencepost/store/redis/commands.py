"""Changes to fires and to when jobs are decided, as commands."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.model import FireRecord, State
from fencepost.store.backend import JobChange
from fencepost.store.codec import micros
from fencepost.store.redis.batch import Batch
from fencepost.store.redis.keys import Keys
from fencepost.store.redis.values import has_row, member_of, place_of, row_of

MINUTE = 60_000_000
"""Microseconds."""


def lives(fire: FireRecord | None) -> bool:
    return fire is not None and not fire.state.final


def write_fire(
    batch: Batch, keys: Keys, before: FireRecord | None, after: FireRecord | None, row_before: str | None
) -> tuple[str, int]:
    """Its job, and by how many the job's rows grow. `row_before`: of a final fire, which is found by it."""
    fire = after or before
    assert fire is not None
    if before is None:
        _enter(batch, keys, fire)
    _move(batch, keys, fire, before, after)
    if row_before is not None:
        batch.add("ZREM", keys.done(fire.job_id), row_before)
    if after is not None and after.state.final:
        batch.add("ZADD", keys.done(fire.job_id), micros(fire.due_at), row_of(after))
        _note_early_end(batch, keys, after)
    _note_stretch(batch, keys, before, after)
    if after is None and not fire.scheduled:
        batch.add("HDEL", keys.manual, fire.key)
    return fire.job_id, _has_row(after) - _has_row(before)


def drop_row(batch: Batch, keys: Keys, job_id: str, member: str, replicas: Sequence[str]) -> None:
    """Of a live fire whose row cannot be read: it may be a run of any replica, or wait."""
    place = f"{job_id}:{member}"
    batch.add("ZREM", keys.live(job_id), member)
    batch.add("SREM", keys.others, place)
    batch.do("DEL", keys.run(place), keys.fire(place))
    for replica in replicas:
        batch.add("SREM", keys.held(replica), place)


def write_decide_at(batch: Batch, keys: Keys, group_before: str, group: str, change: JobChange) -> None:
    """What a group has first must be worked out afterwards (`LOOK`)."""
    id = change.record.id
    if group_before and group_before != group:
        batch.add("ZREM", keys.decisions(group_before), id)
    if change.decide_at is None:
        batch.add("ZREM", keys.decisions(group), id)
    else:
        batch.add("ZADD", keys.decisions(group), micros(change.decide_at), id)
    if change.plan_at is None:
        batch.add("ZREM", keys.plan, id)
    else:
        batch.add("ZADD", keys.plan, micros(change.plan_at), id)


def _enter(batch: Batch, keys: Keys, fire: FireRecord) -> None:
    """New to the store."""
    minute = micros(fire.due_at) // MINUTE
    batch.add("SADD", keys.minute(minute), fire.job_id)
    batch.add("ZADD", keys.minutes, minute, minute)
    if not fire.scheduled:
        batch.add("HSET", keys.manual, fire.key, micros(fire.due_at))


def _move(
    batch: Batch, keys: Keys, fire: FireRecord, before: FireRecord | None, after: FireRecord | None
) -> None:
    """Among what lives: by job, by replica, and where its row is."""
    member, place = member_of(fire), place_of(fire)
    if lives(after) and not lives(before):
        batch.add("ZADD", keys.live(fire.job_id), micros(fire.due_at), member)
    elif lives(before) and not lives(after):
        batch.add("ZREM", keys.live(fire.job_id), member)
    held_before, held_after = _holder(before), _holder(after)
    if held_before is not None and held_before != held_after:
        batch.add("SREM", keys.held(held_before), place)
    if held_after is not None:
        batch.add("SADD", keys.held(held_after), place)
        if after is not None and after.remote is not None:
            batch.add("SADD", keys.engines, held_after)
    waits_before, waits_after = _waits(before), _waits(after)
    if waits_before and not waits_after:
        batch.add("SREM", keys.others, place)
        batch.do("DEL", keys.fire(place))
    elif waits_after and after is not None:
        if after.state is not State.PENDING:  # of those by hand there may be a million that lie ahead
            batch.add("SADD", keys.others, place)
        batch.do("SET", keys.fire(place), row_of(after))
    if held_after is not None and after is not None:
        batch.do("SET", keys.run(place), row_of(after))
    elif held_before is not None:
        batch.do("DEL", keys.run(place))


def _holder(fire: FireRecord | None) -> str | None:
    return fire.replica if fire is not None and fire.state is State.RUNNING else None


def _waits(fire: FireRecord | None) -> bool:
    return _has_row(fire) and _holder(fire) is None


def _has_row(fire: FireRecord | None) -> bool:
    return fire is not None and lives(fire) and has_row(fire)


def _note_stretch(batch: Batch, keys: Keys, before: FireRecord | None, after: FireRecord | None) -> None:
    if after is not None and after.count > 1:
        batch.add("ZADD", keys.stretches, micros(after.last_due), _stretch(after))
    elif before is not None and before.count > 1:
        batch.add("ZREM", keys.stretches, _stretch(before))


def _stretch(fire: FireRecord) -> str:
    return f"{fire.job_id}:{micros(fire.due_at)}"


def _note_early_end(batch: Batch, keys: Keys, fire: FireRecord) -> None:
    """It ended before it was due: the clock has stepped back. Pruning must know how far to look."""
    if fire.finished_at is not None and fire.finished_at < fire.due_at:
        early = micros(fire.due_at) - micros(fire.finished_at)
        batch.do("ZADD", keys.extremes, "GT", early, "early")
