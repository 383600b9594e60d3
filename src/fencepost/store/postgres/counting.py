"""Counting fires, by the indexes that finding them uses."""

from __future__ import annotations

from datetime import datetime

from fencepost.model import FireRecord, fire_key, manual_key
from fencepost.store.codec import micros, moment
from fencepost.store.counting import (
    MICROSECOND,
    MOST_STRETCHES,
    SLIM,
    CountQuery,
    SlimQuery,
    Stretch,
    slim_fire,
    slim_values,
)
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.session import PostgresSession

_TABLES = (
    ("{schema}.final", "state"),
    ("{schema}.live", "state"),
    ("{schema}.planned", "'pending'"),
    ("{schema}.later", "state"),
)


class PostgresCounting:
    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    async def count_fires(self, query: CountQuery) -> list[tuple[datetime, str, int]]:
        return await self._session.ask(_count_fires, query)

    async def stretches(self, query: CountQuery) -> list[Stretch]:
        return await self._session.ask(_stretches, query)

    async def slim_fires(self, query: SlimQuery) -> list[FireRecord]:
        return await self._session.ask(_slim_fires, query)


def _count_fires(db: Connection, query: CountQuery) -> list[tuple[datetime, str, int]]:
    width, arms, values = query.width // MICROSECOND, [], list[object]()
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


def _stretches(db: Connection, query: CountQuery) -> list[Stretch]:
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


_SLIM = f"select name, {SLIM} from {{schema}}.final"
_NEWEST = "(select due_at from {schema}.final where job_id = %(job)s and due_at <"
_FIRST = "order by due_at desc limit 1)"
# With the one before them, which may reach into the window.
_OF_ONE = f"""
{_SLIM} where job_id = %(job)s and due_at < %(until)s
    and due_at >= coalesce({_NEWEST} %(since)s {_FIRST}, %(since)s)
order by due_at desc limit %(limit)s
"""
# From bucket to bucket, the newest first: each step is one look into the index.
_SOME = f"""
with recursive hop (due, number) as (
    select (select due_at from {{schema}}.final where job_id = %(job)s WHICH and due_at < %(until)s {_FIRST}, 1
    union all select (select due_at from {{schema}}.final where job_id = %(job)s WHICH
        and due_at < hop.due / %(width)s * %(width)s {_FIRST}, number + 1
    from hop where hop.due >= %(since)s and number < %(limit)s)
select name, {SLIM} from hop join {{schema}}.final as fire on fire.job_id = %(job)s and fire.due_at = hop.due
where hop.due >= %(since)s order by fire.due_at desc
"""


def _slim_fires(db: Connection, query: SlimQuery) -> list[FireRecord]:
    which = "and state <> 'succeeded'" if query.unsuccessful else ""
    statement = _OF_ONE if query.every is None else _SOME.replace("WHICH", which)
    rows = db.cursor(binary=True).execute(db.names.sql(statement), slim_values(query)).fetchall()
    return [slim_fire(_key(*row[:3]), not row[0], row[1:]) for row in rows]


def _key(name: str, job_id: str, due: int) -> str:
    return manual_key(job_id, name) if name else fire_key(job_id, moment(due))
