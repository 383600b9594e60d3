"""Counting fires, by the indexes that finding them uses."""

from __future__ import annotations

from datetime import datetime

from fencepost.store.codec import micros, moment
from fencepost.store.counting import MOST_STRETCHES, CountQuery, Stretch
from fencepost.store.postgres.connection import Connection

_TABLES = (
    ("{schema}.final", "state"),
    ("{schema}.live", "state"),
    ("{schema}.planned", "'pending'"),
)


def count_fires(db: Connection, query: CountQuery) -> list[tuple[datetime, str, int]]:
    width, arms, values = micros(query.until) - micros(query.until - query.width), [], list[object]()
    job = "" if query.job_id is None else "and job_id = %s"
    for table, state in _TABLES:
        arms.append(
            f"select due_at / %s * %s, {state}, count(*) from {table} "
            f"where due_at >= %s and due_at < %s and last_due_at is null {job} group by 1, 2"
        )
        values += [width, width, micros(query.since), micros(query.until)]
        values += [] if query.job_id is None else [query.job_id]
    rows = db.all(" union all ".join(arms), *values)
    return [(moment(at), state, number) for at, state, number in rows]


def stretches(db: Connection, query: CountQuery) -> list[Stretch]:
    arms, values = [], list[object]()
    job = "" if query.job_id is None else "and job_id = %s"
    for table, state in _TABLES:
        arms.append(
            f"select due_at, last_due_at, count, {state} from {table} where last_due_at >= %s and due_at < %s {job}"
        )
        values += [micros(query.since), micros(query.until)]
        values += [] if query.job_id is None else [query.job_id]
    rows = db.all(f"{' union all '.join(arms)} limit %s", *values, MOST_STRETCHES)
    return [Stretch(moment(first), moment(last), number, state) for first, last, number, state in rows]
