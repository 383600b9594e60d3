"""How SQLite counts and samples fires."""

from __future__ import annotations

from fencepost.model import FireRecord
from fencepost.store.counting import SLIM, SlimQuery, slim_fire, slim_values
from fencepost.store.sql.counting import SqlCounting
from fencepost.store.sqlite.statements import SqliteStatements

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


class SqliteCounting(SqlCounting):
    OF_ALL = (
        "indexed by {fires_open} where finished_at is null",
        "indexed by {fires_done} where finished_at is not null",
    )
    OF_JOB = (
        "indexed by {fires_live} where finished_at is null",
        "indexed by {fires_past} where finished_at is not null",
    )
    STRETCHES = "indexed by {fires_stretches} where last_due_at is not null"

    def __init__(self, sql: SqliteStatements) -> None:
        super().__init__(sql)
        self._sqlite = sql

    def slim_fires(self, query: SlimQuery) -> list[FireRecord]:
        place = _FAILURES if query.unsuccessful else _PAST
        statement = _OF_ONE if query.every is None else _SOME.replace("PLACE", place)
        sql = self._sqlite
        rows = sql.db.execute(sql.names.sql(statement), slim_values(query)).fetchall()
        return [slim_fire(key, bool(scheduled), row) for key, scheduled, *row in rows]
