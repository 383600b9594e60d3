"""Finding fires, newest first. Costs follow what is found, however long the history is.

A query is split into parts that one index each answers in the order asked for; SQLite would otherwise look through the
whole ledger for the few rows that are not final, or that stand for several fires.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fencepost.model import State
from fencepost.store.base import FireQuery
from fencepost.store.codec import micros
from fencepost.store.sql.rows import FIRES

_NEWEST = "order by due_at desc, key desc limit ?"

# Each condition is word for word that of its index: only then is it used.
_LIVE, _FINAL = "finished_at is null", "finished_at is not null"
_OPEN = "{fires_open}", _LIVE
_DONE = "{fires_done}", _FINAL
_UNSUCCESSFUL = "{fires_unsuccessful}", f"{_FINAL} and state <> 'succeeded'"
_ACTIVE = "{fires_active}", "state in ('running', 'waiting')"
_QUEUED = "{fires_queued}", "state = 'queued'"
_OF_JOB = (("{fires_live}", _LIVE), ("{fires_past}", _FINAL))


def found(query: FireQuery) -> tuple[Any, ...]:
    """A statement and its values: rows of `FIRE_COLUMNS`. Not for a query that names keys."""
    conditions, values = _conditions(query)
    parts, all_values = [], list[Any]()
    for index, more, more_values in _parts(query):
        where = " and ".join([*conditions, *more])
        parts.append(f"select * from ({FIRES} indexed by {index} where {where} {_NEWEST})")
        all_values += [*values, *more_values, query.limit]
    return (f"{' union all '.join(parts)} {_NEWEST}", *all_values, query.limit)


def _conditions(query: FireQuery) -> tuple[list[str], list[Any]]:
    conditions, values = ["1"], list[Any]()
    if query.job_id is not None:
        conditions.append("job_id = ?")
        values.append(query.job_id)
    if query.states:
        conditions.append(f"state in ({', '.join('?' * len(query.states))})")
        values += [state.value for state in query.states]
    if query.until is not None:
        conditions.append("due_at < ?")
        values.append(micros(query.until))
    return conditions, values


def _parts(query: FireQuery) -> Iterator[tuple[str, list[str], list[Any]]]:
    """Of each part its index, and what else holds in it."""
    indexes = _OF_JOB if query.job_id is not None else _indexes(query.states)
    for index, condition in indexes:
        if query.since is None:
            yield index, [condition], []
            continue
        yield index, [condition, "due_at >= ?"], [micros(query.since)]
    if query.since is not None:
        # A row of many fires may begin before and end after: those are found by their ends.
        ends = ["last_due_at is not null", "last_due_at >= ?", "due_at < ?"]
        yield "{fires_stretches}", ends, [micros(query.since)] * 2


def _indexes(states: Sequence[State]) -> list[tuple[str, str]]:
    """Those that have all fires in these states, and as few others as possible."""
    final = [state for state in states if state.final]
    live = [state for state in states if not state.final]
    indexes = []
    if live and State.PENDING not in live:
        indexes += [_ACTIVE, _QUEUED]
    elif live or not states:
        indexes.append(_OPEN)
    if final and State.SUCCEEDED not in final:
        indexes.append(_UNSUCCESSFUL)
    elif final or not states:
        indexes.append(_DONE)
    return indexes
