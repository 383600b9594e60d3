"""How MySQL loads and finds rows. Costs follow what is found, however long the history is.

The optimizer is told which index to use: it would rather sort everything that is due than read it in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from fencepost.model import ReplicaRecord, State
from fencepost.store.base import FireQuery, Upcoming
from fencepost.store.codec import micros, moment
from fencepost.store.rows import jobs_walked
from fencepost.store.sql.find import SqlFind
from fencepost.store.sql.load import SqlLoad
from fencepost.store.sql.rows import FIRES

NO_LIMIT = 2**31 - 1
_NEWEST = "order by due_at desc, `key` desc limit ?"


class MysqlLoad(SqlLoad):
    ACTIVE = f"{FIRES} force index (job) where state in ('running', 'waiting') and job_id"
    DUE = f"{FIRES} force index (job) where state in ('pending', 'queued') and due_at <= ? and job_id"
    FOLLOWING = """
        select id, (select min(due_at) from {fires} as fire force index (job)
            where fire.job_id = jobs.id and state in ('pending', 'queued') and due_at > ?)
        from {jobs} as jobs where id"""


class MysqlFind(SqlFind):
    def busy_jobs(self) -> Sequence[str]:
        query = "select distinct job_id from {fires} where state in ('queued', 'running', 'waiting')"
        return [row[0] for row in self._sql.all(query)]

    def due(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        but, aside = self._but_aside()
        known, mine = _known(leads)
        values = (replica.id, micros(now), *aside, limit)
        parts = [
            f"(select priority, look_at, id from {{jobs}} as jobs force index ({index}) straight_join {known}"
            f" where {mine} and {column} <= ? and {which}{but} order by {column}, id limit ?)"
            for index, column, which in (("ranked", "ranked_at", "true"), ("look", "look_at", "priority = 0"))
        ]
        # Of those with a priority all are compared: any may be the highest.
        rows = self._sql.all(" union all ".join(parts), *values[:-1], NO_LIMIT, *values)
        return [id for _, _, id in sorted(rows, key=lambda row: (-row[0], row[1], row[2]))][:limit]

    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        but, aside = self._but_aside()
        known, mine = _known(leads) if replica else ("", "true")
        join = f"straight_join {known}" if replica else ""
        query = f"select look_at from {{jobs}} as jobs force index (look) {join}"
        where = f"where {mine} and look_at is not null{but} order by look_at limit 1"
        row = self._sql.one(f"{query} {where}", *([replica.id] if replica else []), *aside)
        return moment(row[0]) if row else None

    def upcoming(self, replica: ReplicaRecord, leads: bool, limit: int) -> Sequence[Upcoming]:
        but, aside = self._but_aside()
        known, mine = _known(leads)
        walk = jobs_walked(limit)
        ahead = f"force index (look) where look_at is not null{but} order by look_at, id limit ?"
        first = f"select look_at, id, target, execute_on from {{jobs}} as jobs {ahead}"
        query = f"select look_at, execute_on, known.target is not null and {mine} from ({first}) as jobs"
        query += f" left join {known} order by look_at, id"
        rows = self._sql.all(query, *aside, walk, replica.id)
        found = [Upcoming(moment(at), on != "any") for at, on, is_known in rows if is_known]
        return found[:limit] if len(found) >= limit or len(rows) < walk else ()

    def _found(self, query: FireQuery) -> Sequence[Any]:
        parts, values = [], list[Any]()
        for index, conditions, more in _parts(query):
            where = f"force index ({index}) where {' and '.join(conditions)}"
            parts.append(f"(select `key`, due_at from {{fires}} {where} {_NEWEST})")
            values += [*more, query.limit]
        rows = self._sql.all(f"{' union all '.join(parts)} {_NEWEST}", *values, query.limit)
        place = {key: number for number, (key, _) in enumerate(rows)}
        return sorted(self._sql.among(f"{FIRES} where `key`", list(place)), key=lambda row: place[row[0]])


def _known(leads: bool) -> tuple[str, str]:
    """Jobs whose task a replica knows: what to join, by a join that leaves the order of the jobs as it is, and a
    condition."""
    known = "{replica_targets} as known on known.replica = ? and known.target = jobs.target"
    return known, "true" if leads else "execute_on = 'any'"


def _parts(query: FireQuery) -> Iterator[tuple[str, list[str], list[Any]]]:
    """Each is one piece of an index, in the order asked for: the fires of one state, and those that began earlier and
    stand for several. Of each the index, the conditions and their values."""
    of_job = ([], []) if query.job_id is None else (["job_id = ?"], [query.job_id])
    until = ([], []) if query.until is None else (["due_at < ?"], [micros(query.until)])
    since = ([], []) if query.since is None else (["due_at >= ?"], [micros(query.since)])
    states = [state.value for state in query.states or State]
    for state in states:
        conditions = [*of_job[0], "state = ?", *until[0], *since[0]]
        yield ("job" if query.job_id else "state"), conditions, [*of_job[1], state, *until[1], *since[1]]
    if query.since is not None:
        conditions = [*of_job[0], "state in ?", *until[0], "last_due_at >= ?", "due_at < ?"]
        yield "stretches", conditions, [*of_job[1], states, *until[1], *[micros(query.since)] * 2]
