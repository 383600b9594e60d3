"""How MySQL counts and samples fires."""

from __future__ import annotations

from fencepost.model import FireRecord, State
from fencepost.store.codec import micros
from fencepost.store.counting import MICROSECOND, SLIM, SlimQuery, slim_fire
from fencepost.store.sql.counting import SqlCounting

FINAL = [state.value for state in State if state.final]
_ANY = ", ".join(f"'{state.value}'" for state in State)
_SLIM = f"select `key`, scheduled, {SLIM} from {{fires}} force index (job) where job_id = ? and state in ?"


class MysqlCounting(SqlCounting):
    # Each index begins with the state, or with the job and the state: all states are pieces of it.
    OF_ALL = (f"force index (state) where state in ({_ANY})",)
    OF_JOB = (f"force index (job) where state in ({_ANY})",)
    STRETCHES = "force index (stretches) where true"

    def slim_fires(self, query: SlimQuery) -> list[FireRecord]:
        states = [state for state in FINAL if not query.unsuccessful or state != State.SUCCEEDED]
        since = micros(query.since)
        if query.every is None:
            before = self._newest(query.job_id, states, since)
            where = f"{_SLIM} and due_at >= ? and due_at < ? order by due_at desc limit ?"
            begin = since if before is None else before
            rows = list(self._sql.all(where, query.job_id, states, begin, micros(query.until), query.limit))
        else:
            rows, width = [], query.every // MICROSECOND
            due = self._newest(query.job_id, states, micros(query.until))
            while due is not None and due >= since and len(rows) < query.limit:
                rows += self._sql.all(f"{_SLIM} and due_at = ?", query.job_id, states, due)
                due = self._newest(query.job_id, states, due // width * width)
        return [slim_fire(key, bool(scheduled), row) for key, scheduled, *row in rows]

    def _newest(self, job_id: str, states: list[str], before: int) -> int | None:
        """When the last fire before then was due: one read of the index for each state."""
        newest = "(select due_at from {fires} force index (job) where job_id = ? and state = ? and due_at < ?"
        parts = [f"{newest} order by due_at desc limit 1)"] * len(states)
        values = [value for state in states for value in (job_id, state, before)]
        rows = self._sql.all(" union all ".join(parts), *values)
        return max((row[0] for row in rows), default=None)
