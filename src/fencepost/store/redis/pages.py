"""The ledger, read and pruned a page at a time: no script looks at more than some thousand fires."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from fencepost.model import FireRecord, JobEvent, State
from fencepost.model.triggers import iso
from fencepost.store.base import FireQuery
from fencepost.store.codec import micros, moment
from fencepost.store.redis import scripts
from fencepost.store.redis.batch import Batch
from fencepost.store.redis.keys import Keys, join
from fencepost.store.redis.values import fire_of, moment_in, planned_fire
from fencepost.store.rules.history import needed_events
from fencepost.store.tables import by_due, matches
from fencepost.store.texts import read, text
from fencepost.store.unreadable import UnreadableRows

Call = Callable[..., Any]
"""Has the server do a command, or a script, and waits for the reply."""

PAGE = 1_000
MINUTE = 60_000_000
WITH_ROWS = frozenset({State.RUNNING, State.WAITING, State.QUEUED})
"""States in which a fire always has a row of its own, so that it need not be searched for."""


def find(call: Call, keys: Keys, query: FireQuery, registry: UnreadableRows) -> list[FireRecord]:
    """Newest first."""
    if query.states and WITH_ROWS.issuperset(query.states):
        pages: Iterable[Iterable[FireRecord]] = [
            _read(call("EVALSHA", scripts.ACTIVE, keys.prefix), registry)
        ]
    elif query.job_id is not None:
        pages = _of_job(call, keys, query, query.job_id, registry)
    else:
        pages = _of_all(call, keys, query, registry)
    found: dict[str, FireRecord] = {}
    for page in pages:
        found.update({fire.key: fire for fire in page if matches(fire, query)})
        if len(found) >= query.limit:
            break
    if query.since is not None:
        found.update(
            {fire.key: fire for fire in _reaching(call, keys, query.since, registry) if matches(fire, query)}
        )
    return sorted(found.values(), key=by_due, reverse=True)[: query.limit]


def _of_job(
    call: Call, keys: Keys, query: FireQuery, job_id: str, registry: UnreadableRows
) -> Iterator[Iterator[FireRecord]]:
    lowest = micros(query.since) if query.since else "-inf"
    highest = f"({micros(query.until)}" if query.until else "+inf"
    page = min(PAGE, query.limit + 1)
    while highest:
        # What was cut off is begun again with: several may have been due at that moment.
        args = (job_id, lowest, highest, _states(query), page)
        rows, cut = call("EVALSHA", scripts.FIND_OF_JOB, keys.prefix, *args)
        yield _read(rows, registry)
        page = PAGE
        highest = cut if cut != highest else f"({cut}"


def _of_all(
    call: Call, keys: Keys, query: FireQuery, registry: UnreadableRows
) -> Iterator[Iterator[FireRecord]]:
    lowest = micros(query.since) if query.since else "-inf"
    below = micros(query.until) if query.until else "+inf"
    last = (micros(query.until) - 1) // MINUTE if query.until else "+inf"
    first = call("ZREVRANGEBYSCORE", keys.minutes, last, "-inf", "LIMIT", 0, 1)
    minute, cursor = first[0] if first else None, "0"
    while minute is not None:
        page: list[FireRecord] = []
        while True:  # newest first holds from minute to minute, so one must be whole
            args = (lowest, below, _states(query), minute, cursor, query.limit)
            rows, minute, cursor = call("EVALSHA", scripts.FIND, keys.prefix, *args)
            page += _read(rows, registry)
            if cursor == "0":
                break
        yield iter(page)


def _reaching(call: Call, keys: Keys, since: datetime, registry: UnreadableRows) -> Iterator[FireRecord]:
    """Rows that stand for several fires, the last of which was due at `since` or later."""
    for member in call("ZRANGEBYSCORE", keys.stretches, micros(since), "+inf"):
        job_id, _, due = member.rpartition(":")
        rows, _ = call("EVALSHA", scripts.FIND_OF_JOB, keys.prefix, job_id, due, due, "", PAGE)
        yield from _read(rows, registry)


def _read(rows: Sequence[Any], registry: UnreadableRows) -> Iterator[FireRecord]:
    for job_id, due, kind, row in rows:
        if kind == "planned":
            yield planned_fire(job_id, row, int(due))
            continue
        state = State.RUNNING if kind == "running" else State.PENDING
        args = (job_id, int(due), row, state)
        key = join(job_id, moment_in(row) or iso(moment(int(due))))
        fire = registry.read("fire", key, fire_of, *args, job_id=job_id, holds=kind != "done")
        if fire is not None:
            yield fire


def _states(query: FireQuery) -> str:
    return f",{','.join(query.states)}," if query.states else ""


def prune(call: Call, keys: Keys, before: datetime, registry: UnreadableRows) -> int:
    """Final fires that ended before then, and events no longer needed."""
    early = call("ZSCORE", keys.extremes, "early") or 0
    last = (micros(before) + int(early)) // MINUTE
    gone = 0
    for minute in call("ZRANGEBYSCORE", keys.minutes, "-inf", last):
        cursor = "0"
        while True:
            args = (micros(before), minute, cursor)
            dropped, cursor = call("EVALSHA", scripts.PRUNE, keys.prefix, *args)
            gone += dropped
            if cursor == "0":
                break
    for job_id in call("SMEMBERS", keys.retold):
        _prune_events(call, keys, job_id, before, registry)
    return gone


def _prune_events(call: Call, keys: Keys, job_id: str, before: datetime, registry: UnreadableRows) -> None:
    edition = call("HGET", keys.hot(job_id), "edition")
    rows = call("LRANGE", keys.events(job_id), 0, -1)
    found = [
        registry.read("event", f"{job_id} {number}", read, JobEvent, row, job_id=job_id)
        for number, row in enumerate(rows)
    ]
    events = [event for event in found if event is not None]
    needed = needed_events(events, before)
    if not needed or len(needed) == len(rows) or len(events) < len(rows):
        return  # what cannot be read stays where it is, and with it the order of all
    batch = Batch()
    batch.check(keys.hot(job_id), "edition", edition or "")
    batch.do("DEL", keys.events(job_id))
    batch.do("RPUSH", keys.events(job_id), *(text(event) for event in needed))
    if len(needed) < 2:
        batch.do("SREM", keys.retold, job_id)
    batch.do("HINCRBY", keys.hot(job_id), "edition", 1)
    # If the job is being changed at this moment its events are left to the next time.
    call("EVALSHA", scripts.COMMIT, keys.prefix, "", *batch.words())
