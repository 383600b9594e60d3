"""The outbox: what channels are to be told of, written in the same step as its cause, once per cause.

A cause that goes on is an *episode* on the job's record: its begin is one notice, the next success ends it and is one
more. What did not happen (a late start, no success for a day) the leader looks for (`watching.py`).

In the entries of a store:

    rules, rule_changes/…                all rules, as one text (`notify_rules.py`)
    channels                             how the leader's channels fare
    waits/<channel>/<microseconds>/<id>  notices to be delivered, oldest first
    aside/<channel>/<microseconds>/<id>  those that could not be
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobRecord, Json, Reason, State, changed, error_line
from fencepost.model.notices import Notice
from fencepost.model.triggers import iso
from fencepost.model.watching import BEGINS, Episode, Watch
from fencepost.store.codec import from_json, micros, to_json
from fencepost.store.outbox import NoticeChange, Outbox, OutboxQuery, Waiting
from fencepost.store.rows import Rows
from fencepost.store.rules.notify_rules import rule_changes, stored_rules, watched

CHANNELS = "channels"
WAITS, ASIDE = "waits/", "aside/"
MOST_WAITING = 1_000
"""Notices of a channel that wait; what comes on top is joined into one. As many are kept aside."""
MOST_CHANNELS = 100
OVERFLOW = "~"
"""Sorts after every moment."""
OUTPUT_END = 2_000


# --- when a fire ends or begins ---------------------------------------------------------------------------------


def started(rows: Rows, at: Moment, record: JobRecord, fire: FireRecord) -> None:
    for watch in record.watch:
        if "started" in watch.on:
            _tell(rows, at, watch, record, "started", f"{fire.key} {fire.token}", fire)


def ended(rows: Rows, at: Moment, record: JobRecord, fire: FireRecord) -> JobRecord:
    """The record with what this end of a fire begins or ends on it; notices are written."""
    if fire.state is State.SUCCEEDED and record.watch:
        return _succeeded(rows, at, record, fire)
    if fire.state.value not in BEGINS or fire.reason == Reason.PAST:
        return record
    # A rule holds as soon as it is stored, also for jobs that the leader's walk has not reached yet.
    record = watched(stored_rules(rows), record)
    for watch in record.watch:
        if watch.each_run:
            if fire.state.value in watch.on:
                _tell(rows, at, watch, record, fire.state.value, fire.key, fire)
            continue
        for cause, silent in _causes_of(watch, record, fire):
            record = begin(rows, at, watch, record, cause, fire, silent)
    return record


def _causes_of(watch: Watch, record: JobRecord, fire: FireRecord) -> Iterable[tuple[str, bool]]:
    """With whether its begin is told."""
    if fire.state.value in watch.on:
        yield fire.state.value, False
    elif "recovered" in watch.on:
        yield fire.state.value, True
    if watch.in_a_row is not None and record.failures_in_a_row >= watch.in_a_row:
        yield "failed_in_a_row", False


def begin(
    rows: Rows,
    at: Moment,
    watch: Watch,
    record: JobRecord,
    cause: str,
    fire: FireRecord | None,
    silent: bool = False,
) -> JobRecord:
    if any(each.rule == watch.rule and each.cause == cause for each in record.episodes):
        return record
    began = fire.key if fire is not None else iso(at.wall)
    if not silent:
        _tell(rows, at, watch, record, cause, began, fire)
    return changed(record, episodes=(*record.episodes, Episode(watch.rule, cause, began, at.wall, silent)))


def _succeeded(rows: Rows, at: Moment, record: JobRecord, fire: FireRecord) -> JobRecord:
    """A recovery is named by the success, not by what it ends: a store that lost a recovery which was delivered may
    open more episodes before the next one, and a receiver that counts by ids must not take that one for the first."""
    for watch in record.watch:
        open_ones = [each for each in record.episodes if each.rule == watch.rule]
        if "succeeded" in watch.on:
            _tell(rows, at, watch, record, "succeeded", fire.key, fire)
        if open_ones and "recovered" in watch.on:
            _tell(rows, at, watch, record, "recovered", fire.key, fire)
    return changed(record, episodes=()) if record.episodes else record


def _tell(
    rows: Rows,
    at: Moment,
    watch: Watch,
    record: JobRecord,
    cause: str,
    began: str,
    fire: FireRecord | None,
) -> None:
    id = hashlib.sha256("\0".join((watch.rule, record.id, cause, began)).encode()).hexdigest()[:24]
    notice = Notice(
        id,
        cause,
        record.id,
        fire.key if fire else None,
        fire.state.value if fire else "",
        fire.why if fire else None,
        error_line(fire.error) if fire else None,
        at.wall,
        max(1, record.failures_in_a_row),
        _details(record, fire),
    )
    _put(rows, Waiting(watch.channel, watch.rule, notice))


def _details(record: JobRecord, fire: FireRecord | None) -> dict[str, Json]:
    trigger = record.job.trigger
    details: dict[str, Json] = {
        "trigger": trigger.to_json() if trigger else None,
        "last_success_at": iso(record.last_success_at) if record.last_success_at else None,
    }
    if fire is not None:
        details |= {
            "due_at": iso(fire.due_at),
            "started_at": iso(fire.started_at) if fire.started_at else None,
            "finished_at": iso(fire.finished_at) if fire.finished_at else None,
            "token": fire.token,
            "attempt": fire.attempt,
            "replica": fire.replica,
            "fires": fire.count,
            "output_end": fire.output[-OUTPUT_END:] if fire.output else None,
        }
    return {name: value for name, value in details.items() if value is not None}


def _put(rows: Rows, waiting: Waiting) -> None:
    prefix = f"{WAITS}{waiting.channel}/"
    key = f"{prefix}{micros(waiting.notice.at):016d}/{waiting.notice.id}"
    rows.notify = True
    if rows.entries.count(prefix) < MOST_WAITING:
        rows.entries.put(key, _text(waiting))
        return
    known = _read(f"{prefix}{OVERFLOW}", rows.entries.get(f"{prefix}{OVERFLOW}"))
    joined = known.notice.count + 1 if known is not None else 1
    id = known.notice.id if known is not None else f"overflow-{waiting.notice.id}"
    notice = replace(waiting.notice, id=id, cause="overflow", count=joined)
    rows.entries.put(f"{prefix}{OVERFLOW}", _text(replace(waiting, notice=notice)))


# --- what is read and changed of it -------------------------------------------------------------------------------


def outbox(rows: Rows, at: Moment, query: OutboxQuery) -> Outbox:
    prefix = f"{ASIDE if query.aside else WAITS}{query.channel}{'/' if query.channel else ''}"
    found = [_read(key, text) for key, text in rows.entries.page(prefix, query.after, query.limit)]
    return Outbox(
        tuple(each for each in found if each is not None),
        stored_rules(rows),
        json.loads(rows.entries.get(CHANNELS) or "{}"),
        _counts(rows, WAITS),
        _counts(rows, ASIDE),
        rule_changes(rows) if query.changes else (),
    )


def _counts(rows: Rows, prefix: str) -> dict[str, int]:
    """By channel, from one to the next."""
    counts: dict[str, int] = {}
    after = ""
    while len(counts) < MOST_CHANNELS and (found := rows.entries.page(prefix, after, 1)):
        channel = found[0][0].split("/")[1]
        counts[channel] = rows.entries.count(f"{prefix}{channel}/")
        after = f"{prefix}{channel}/\x7f"
    return counts


def update_outbox(
    rows: Rows, at: Moment, changes: Sequence[NoticeChange], report: Mapping[str, Json] | None = None
) -> tuple[bool, ...]:
    """Whether each was there. `report`: how the leader's channels fare."""
    if report is not None:
        rows.entries.put(CHANNELS, json.dumps(report, separators=(",", ":")))
    return tuple(_change(rows, at, change) for change in changes)


def _change(rows: Rows, at: Moment, change: NoticeChange) -> bool:
    waiting = _read(change.key, rows.entries.get(change.key))
    if waiting is None or not change.key.startswith((WAITS, ASIDE)):
        return False
    tried = replace(waiting, attempts=waiting.attempts + 1, error=change.error)
    if change.kind == "failed":
        rows.entries.put(change.key, _text(tried))
        return True
    rows.entries.drop(change.key)
    place = change.key.partition("/")[2]
    if change.kind == "aside" and change.key.startswith(WAITS):
        _make_room_aside(rows, waiting.channel)
        rows.entries.put(f"{ASIDE}{place}", _text(replace(tried, set_aside_at=at.wall)))
    elif change.kind == "retry":
        again = replace(waiting, attempts=0, set_aside_at=None)
        rows.entries.put(f"{WAITS}{place}", _text(again))
        rows.notify = True
    return True


def _make_room_aside(rows: Rows, channel: str) -> None:
    prefix = f"{ASIDE}{channel}/"
    if rows.entries.count(prefix) >= MOST_WAITING:
        rows.entries.drop(rows.entries.page(prefix, "", 1)[0][0])


def _text(waiting: Waiting) -> str:
    return json.dumps(to_json(replace(waiting, key="")), separators=(",", ":"))


def _read(key: str, text: str | None) -> Waiting | None:
    if text is None:
        return None
    waiting: Waiting = from_json(Waiting, json.loads(text))
    return replace(waiting, key=key)
