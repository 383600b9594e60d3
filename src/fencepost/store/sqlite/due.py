"""Which jobs are due for a replica. Costs follow what it can run, not what is due of tasks that it does not know.

Usually it walks through what is due, in order, and passes over the few jobs that are not for it. Where a crowd is due
it looks at the first ones only. If those are not for it, as in a pool where no replica is, it asks task by task.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fencepost.model import ReplicaRecord
from fencepost.store.base import Upcoming
from fencepost.store.codec import micros, moment
from fencepost.store.reader import RowReader
from fencepost.store.rows import jobs_walked
from fencepost.store.sql.find import but_aside
from fencepost.store.sql.statements import Statements

CROWD = 70
"""Jobs due at once that are walked through without a further question."""
MORE = 10
"""Of a crowd: so many more jobs are looked at than asked for."""
MOST_AHEAD = 4000
"""Rows that may be read to list what is ahead beside a crowd."""
FAR = 2**62

_IS_CROWDED = "select 1 from {jobs} where look_at is not null and look_at <= ? limit 1 offset ?"
_HEADS = """
select target, look_at, id from (
    select task.target, (
        select id from {{jobs}} as due indexed by {{jobs_due}}
        where due.target = task.target and look_at is not null and priority = 0{mine} order by look_at, id limit 1
    ) as first
    from {{replica_targets}} as task where replica = ?
) join {{jobs}} as job using (target) where job.id = first and look_at <= ? order by look_at, id limit ?
"""
"""Of each task that a replica knows the job that is due first, in order."""
_OF_TASK = """
select priority, look_at, id from {{jobs}} indexed by {{jobs_due}}
where target = ? and look_at is not null and priority = 0 and look_at <= ?{mine} order by look_at, id limit ?
"""

_AHEAD_OF_TASK = _OF_TASK.replace("priority, look_at, id", "look_at, id, execute_on")
_AHEAD_OF_OTHERS = """
select look_at, id, execute_on from {{jobs}} as jobs indexed by {{jobs_priority}} where {which}
order by look_at, id limit ?
"""


class DueForReplica:
    """For one step."""

    def __init__(self, sql: Statements, reader: RowReader) -> None:
        self._sql = sql
        self._reader = reader
        self._crowded: bool | None = None

    def jobs(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        if not self._is_crowded(now):
            return self._walk(now, replica, leads, limit)
        but, aside = but_aside(self._sql, self._reader)
        first = (
            f"select * from {{jobs}} where look_at <= ? and priority = 0{but} order by look_at, id limit ?"
        )
        query = f"select priority, look_at, id, ({_known(leads)}) from ({first}) as jobs order by look_at, id"
        walked = self._sql.all(query, replica.id, micros(now), *aside, limit + MORE)
        found = [row[:3] for row in walked if row[3]]
        if len(found) < limit and len(walked) == limit + MORE:
            found = self._by_task(now, replica, leads, limit)
        found += self._prior(now, replica, leads)
        found.sort(key=lambda row: (-row[0], row[1], row[2]))
        return [row[2] for row in found[:limit]]

    def soonest(self, replica: ReplicaRecord | None, leads: bool) -> datetime | None:
        but, aside = but_aside(self._sql, self._reader)
        query = f"select look_at from {{jobs}} as jobs where look_at is not null{but}"
        if replica is None:
            row = self._sql.one(f"{query} order by look_at limit 1", *aside)
        elif self._is_crowded(self._reader.at.wall):
            row = (self._soonest_in_a_crowd(replica, leads),)
        else:
            row = self._sql.one(f"{query} and {_known(leads)} order by look_at limit 1", *aside, replica.id)
        return moment(row[0]) if row and type(row[0]) is int else None

    def upcoming(self, replica: ReplicaRecord, leads: bool, limit: int) -> list[Upcoming]:
        if self._is_crowded(self._reader.at.wall):
            return self._upcoming_in_a_crowd(replica, leads, limit)
        but, aside = but_aside(self._sql, self._reader)
        walk = jobs_walked(limit)
        columns = "look_at, id, target, execute_on"
        first = f"select {columns} from {{jobs}} where look_at is not null{but} order by look_at, id limit ?"
        query = f"select look_at, execute_on from ({first}) as jobs where {_known(leads)} order by look_at, id limit ?"
        rows = self._sql.all(query, *aside, walk, replica.id, limit)
        if len(rows) < limit and self._is_more(walk):
            return []
        return [Upcoming(moment(at), on != "any") for at, on in rows if type(at) is int]

    def _upcoming_in_a_crowd(self, replica: ReplicaRecord, leads: bool, limit: int) -> list[Upcoming]:
        """The first job of each task, and then what follows in those tasks that come first."""
        but, aside = but_aside(self._sql, self._reader)
        mine = f"{'' if leads else _ANY}{but}"
        heads = self._sql.all(_HEADS.format(mine=mine), *aside, replica.id, FAR, limit)
        is_due = bool(heads) and heads[0][1] <= micros(self._reader.at.wall)
        if is_due or len(heads) * limit > MOST_AHEAD:
            return []
        upto = heads[-1][1] if len(heads) == limit else FAR
        found: list[Any] = []
        for target, *_ in heads:
            found += self._sql.all(_AHEAD_OF_TASK.format(mine=mine), target, upto, *aside, limit)
        which = f"priority <> 0 and look_at is not null and {_known(leads)}{but}"
        found += self._sql.all(_AHEAD_OF_OTHERS.format(which=which), replica.id, *aside, limit)
        return [Upcoming(moment(at), on != "any") for at, _, on in sorted(found)[:limit] if type(at) is int]

    def _is_more(self, walk: int) -> bool:
        more = "select 1 from {jobs} where look_at is not null limit 1 offset ?"
        return self._sql.one(more, walk) is not None

    def _is_crowded(self, now: datetime) -> bool:
        """Only what is the quicker way depends on it."""
        if self._crowded is None:
            self._crowded = self._sql.one(_IS_CROWDED, micros(now), CROWD) is not None
        return self._crowded

    def _walk(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[str]:
        but, aside = but_aside(self._sql, self._reader)
        which = f"look_at <= ? and {_known(leads)}{but}"
        values = micros(now), replica.id, *aside
        columns = "select priority, look_at, id from {jobs} as jobs"
        usual = f"{columns} where {which} and priority = 0 order by look_at, id limit ?"
        others = f"{columns} indexed by {{jobs_priority}} where {which} and priority <> 0"
        both = f"{others} union all select * from ({usual})"
        query = f"select id from ({both}) order by priority desc, look_at, id limit ?"
        return [row[0] for row in self._sql.all(query, *values, *values, limit, limit)]

    def _prior(self, now: datetime, replica: ReplicaRecord, leads: bool) -> list[Any]:
        """Of another priority than 0."""
        but, aside = but_aside(self._sql, self._reader)
        which = f"priority <> 0 and look_at <= ? and {_known(leads)}{but}"
        query = (
            f"select priority, look_at, id from {{jobs}} as jobs indexed by {{jobs_priority}} where {which}"
        )
        return list(self._sql.all(query, micros(now), replica.id, *aside))

    def _by_task(self, now: datetime, replica: ReplicaRecord, leads: bool, limit: int) -> list[Any]:
        """The first ones are of the tasks that come first: of as many tasks as jobs are asked for."""
        but, aside = but_aside(self._sql, self._reader)
        mine = f"{'' if leads else _ANY}{but}"
        heads = self._sql.all(_HEADS.format(mine=mine), *aside, replica.id, micros(now), limit)
        found: list[Any] = []
        for target, *_ in heads:
            found += self._sql.all(_OF_TASK.format(mine=mine), target, micros(now), *aside, limit)
        return found

    def _soonest_in_a_crowd(self, replica: ReplicaRecord, leads: bool) -> int | None:
        but, aside = but_aside(self._sql, self._reader)
        columns = "look_at, target, execute_on"
        first = f"select {columns} from {{jobs}} where look_at is not null{but} order by look_at, id limit ?"
        near = f"select min(look_at) from ({first}) as jobs where {_known(leads)}"
        (found,) = self._sql.one(near, *aside, MORE, replica.id)
        if found is not None:
            return int(found)
        mine = f"{'' if leads else _ANY}{but}"
        of_task = f"""select look_at from {{jobs}} as due indexed by {{jobs_due}} where due.target = task.target
            and look_at is not null and priority = 0{mine} order by look_at, id limit 1"""
        others = f"""select min(look_at) from {{jobs}} as jobs indexed by {{jobs_priority}}
            where priority <> 0 and look_at is not null and {_known(leads)}{but}"""
        every = f"select ({of_task}) as look_at from {{replica_targets}} as task where replica = ?"
        query = f"select min(look_at) from ({every} union all {others})"
        (found,) = self._sql.one(query, *aside, replica.id, replica.id, *aside)
        return None if found is None else int(found)


_ANY = " and execute_on = 'any'"


def _known(leads: bool) -> str:
    """Jobs whose task a replica knows. Registered once: a list sent with each claim would cost more than it."""
    known = "exists (select 1 from {replica_targets} as known where known.replica = ? and known.target = jobs.target)"
    return known if leads else f"execute_on = 'any' and {known}"
