"""Counting fires, by the indexes that finding them uses."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

from fencepost.model import FireRecord
from fencepost.store.codec import micros, moment
from fencepost.store.counting import MOST_STRETCHES, SLIM, CountQuery, SlimQuery, Stretch, slim_fire
from fencepost.store.sqlite.schema import Names

MICROSECOND = timedelta(microseconds=1)

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

# Each condition is word for word that of its index: only then is it used.
_PAST = "indexed by {fires_past} where job_id = :job and finished_at is not null"
_FAILURES = (
    "indexed by {fires_failures} where job_id = :job and finished_at is not null and state <> 'succeeded'"
)
_NEWEST = f"(select due_at from {{fires}} {_PAST} and due_at <"
_FIRST = "order by due_at desc limit 1)"
# With the one before them, which may reach into the window.
_OF_ONE = f"""
select key, scheduled, {SLIM} from {{fires}} {_PAST} and due_at < :until
    and due_at >= coalesce({_NEWEST} :since {_FIRST}, :since)
order by due_at desc limit :limit
"""
# From bucket to bucket, the newest first: each step is one look into the index. The cross join and the plus
# keep SQLite from going through all fires of the job instead.
_SOME = f"""
with recursive hop (due, number) as (
    select (select due_at from {{fires}} PLACE and due_at < :until {_FIRST}, 1
    union all select (select due_at from {{fires}} PLACE and due_at < hop.due / :width * :width {_FIRST}, number + 1
    from hop where hop.due >= :since and number < :limit)
select key, scheduled, {SLIM} from hop cross join {{fires}} as fire PLACE and fire.due_at = hop.due
    and +hop.due >= :since order by fire.due_at desc
"""


def slim_fires(db: sqlite3.Connection, names: Names, query: SlimQuery) -> list[FireRecord]:
    place = _FAILURES if query.unsuccessful else _PAST
    statement = _OF_ONE if query.every is None else _SOME.replace("PLACE", place)
    values = {
        "job": query.job_id,
        "since": micros(query.since),
        "until": micros(query.until),
        "limit": query.limit,
        "width": query.every // MICROSECOND if query.every else 1,
    }
    rows = db.execute(names.sql(statement), values).fetchall()
    return [slim_fire(key, bool(scheduled), row) for key, scheduled, *row in rows]


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
        "width": query.width // MICROSECOND,
        "since": micros(query.since),
        "until": micros(query.until),
        "job": query.job_id,
        "most": MOST_STRETCHES,
    }
