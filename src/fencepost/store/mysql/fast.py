"""MySQL's fast path. Rows are written whole: that is one statement for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fencepost.model import FireRecord
from fencepost.store.codec import micros, ticks
from fencepost.store.mysql.connection import upsert
from fencepost.store.rows import Fast
from fencepost.store.sql.fast import SqlFastPath
from fencepost.store.sql.rows import FIRE_FIELDS, FIRES, OUTCOME, fire_row

HOT = ("token", "decided_through", "look_at")
_CLAIMED = upsert("jobs", ("id", *HOT, "plain"), HOT)


class MysqlFastPath(SqlFastPath):
    # `not exists` would be made a list of all that is live, by reading the whole index while others wait for the lock.
    DUE = """
        select jobs.id, fire.`key`, fire.due_at, (select due_at from {fires} as other force index (job)
                where other.job_id = jobs.id and state = 'pending' and due_at > ? order by due_at limit 1),
            definition, rest, jobs.token, decided_through, tail
        from {jobs} as jobs straight_join {fires} as fire force index (job)
            on fire.job_id = jobs.id and fire.state = 'pending' and fire.due_at <= ?
        where jobs.id AMONG and plain and fire.scheduled and fire.count = 1 and fire.token = 0
            and fire.extra is null and fire.not_before is null and fire.due_at > coalesce(decided_through, -1)
            and (select 1 from {fires} as other force index (job) where other.job_id = jobs.id
                and other.state = 'pending' and other.due_at <= ? and other.`key` <> fire.`key` limit 1) is null
            and (select 1 from {fires} as other force index (job) where other.job_id = jobs.id
                and other.state in ('queued', 'running', 'waiting') limit 1) is null
    """
    # What is due of a calendar that is behind may be a backlog, which waits for the planner: its job is not decided.
    RUNNING = f"""
        {FIRES} join {{jobs}} as jobs on jobs.id = fire.job_id
        where fire.`key` AMONG and fire.state = 'running' and plain
            and (coalesce(look_at > ?, true) or coalesce(plan_at > ?, true))
    """
    RAN = (
        upsert("outcomes", ("job_id", *OUTCOME), OUTCOME[:-2])
        + ", last_success_at = coalesce(values(last_success_at), last_success_at), failures_in_a_row ="
        " if(values(last_success_at) is null, failures_in_a_row + values(failures_in_a_row), 0)"
    )

    def claim(self, claims: Sequence[Fast]) -> None:
        self._put(each.fire for each in claims)
        hot = [(each.record, micros(each.fire.due_at), ticks(each.next_at)) for each in claims]
        self._sql.many(_CLAIMED, [(record.id, record.token, due, after, True) for record, due, after in hot])

    def end(self, fires: Sequence[FireRecord]) -> None:
        self._put(fires)
        self._note_ends(fires)

    def _put(self, fires: Iterable[FireRecord]) -> None:
        self._sql.put("fires", (*FIRE_FIELDS, "extra"), [fire_row(fire) for fire in fires])
