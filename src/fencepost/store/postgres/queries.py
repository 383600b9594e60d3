"""Finding fires, newest first, in four tables. Costs follow what is found, however long the history is."""

from __future__ import annotations

from typing import Any

from fencepost.model import State
from fencepost.store.base import FireQuery
from fencepost.store.codec import micros
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.records import FIRE_COLUMNS, PLANNED_COLUMNS

_PLANNED = f"(select {PLANNED_COLUMNS} from {{schema}}.planned) as planned ({FIRE_COLUMNS})"

# Of fires due at the same time the one with the higher key is first. Their keys differ only before the moment.
_ORDER = """
order by due_at desc, job_id || case name when '' then '@' else '!' || name end collate "C" desc limit %s
"""


def found(db: Connection, query: FireQuery) -> list[Any]:
    """Rows of `FIRE_COLUMNS`. Not for a query that names keys."""
    conditions, values = _conditions(query)
    arms, all_values = [], list[Any]()
    for table in _tables(query.states):
        for more, more_values in _since(query):
            where = " and ".join([*conditions, more])
            arms.append(f"(select {FIRE_COLUMNS} from {table} where {where} {_ORDER})")
            all_values += [*values, *more_values, query.limit]
    return db.all(f"select * from ({' union all '.join(arms)}) fires {_ORDER}", *all_values, query.limit)


def _tables(states: tuple[State, ...]) -> list[str]:
    """Where fires in these states are; no states are all of them."""
    tables = []
    if not states or any(state.final for state in states):
        tables.append("{schema}.final")
    if not states or any(not state.final for state in states):
        tables.append("{schema}.live")
    if not states or State.PENDING in states:
        tables += [_PLANNED, "{schema}.later"]
    return tables


def _conditions(query: FireQuery) -> tuple[list[str], list[Any]]:
    conditions, values = list[str](), list[Any]()
    if query.job_id is not None:
        conditions.append("job_id = %s")
        values.append(query.job_id)
    if query.states:
        # Spelled out: only then is it known that the index of those that did not succeed is enough.
        names = ", ".join(f"'{state.value}'" for state in query.states)
        conditions.append(f"state in ({names})")
    if query.until is not None:
        conditions.append("due_at < %s")
        values.append(micros(query.until))
    return conditions, values


def _since(query: FireQuery) -> list[tuple[str, list[Any]]]:
    """A row of many fires may begin before and end after: those are found by their ends."""
    if query.since is None:
        return [("true", [])]
    since = micros(query.since)
    return [("due_at >= %s", [since]), ("last_due_at >= %s and due_at < %s", [since, since])]
