"""Counting fires, by the indexes that finding them uses."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from fencepost.store.codec import micros, moment
from fencepost.store.counting import MOST_STRETCHES, CountQuery, Stretch
from fencepost.store.sqlite.schema import Names

_COUNT = """
select due_at / :width * :width, state, count(*) from {{fires}} indexed by {index}
where {condition} and {job} due_at >= :since and due_at < :until and last_due_at is null group by 1, 2
"""
_OF_ALL = (("{fires_open}", "finished_at is null"), ("{fires_done}", "finished_at is not null"))
_OF_JOB = (("{fires_live}", "finished_at is null"), ("{fires_past}", "finished_at is not null"))
_STRETCHES = """
select due_at, last_due_at, count, state from {fires} indexed by {fires_stretches}
where last_due_at is not null and last_due_at >= :since and due_at < :until and (:job is null or job_id = :job)
limit :most
"""


def count_fires(db: sqlite3.Connection, names: Names, query: CountQuery) -> list[tuple[datetime, str, int]]:
    indexes, job = (_OF_ALL, "") if query.job_id is None else (_OF_JOB, "job_id = :job and")
    parts = [_COUNT.format(index=index, condition=condition, job=job) for index, condition in indexes]
    rows = db.execute(names.sql(" union all ".join(parts)), _values(query)).fetchall()
    return [(moment(at), state, number) for at, state, number in rows]


def stretches(db: sqlite3.Connection, names: Names, query: CountQuery) -> list[Stretch]:
    rows = db.execute(names.sql(_STRETCHES), _values(query)).fetchall()
    return [Stretch(moment(first), moment(last), number, state) for first, last, number, state in rows]


def _values(query: CountQuery) -> dict[str, object]:
    return {
        "width": micros(query.until) - micros(query.until - query.width),
        "since": micros(query.since),
        "until": micros(query.until),
        "job": query.job_id,
        "most": MOST_STRETCHES,
    }
