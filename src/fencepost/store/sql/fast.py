"""The fast path: fires that are simply claimed, run and settled, a few narrow statements for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fencepost.model import FireRecord, LastRun
from fencepost.store.backend import FastPath
from fencepost.store.codec import micros, moment, ticks, when
from fencepost.store.reader import RowReader
from fencepost.store.rows import Fast
from fencepost.store.sql.load import SqlLoad
from fencepost.store.sql.rows import job_of, run_row
from fencepost.store.sql.statements import Statements


class SqlFastPath(FastPath):
    DUE: str
    """Of some jobs (`AMONG`) the one fire that is due until a moment (every `?`) and never was claimed; beside it only
    those are live that are planned ahead. The job's id, the fire's key and due time, that of the next fire, the job."""
    RUNNING: str
    """Fires that run, of those with some keys (`AMONG`), whose job is covered and not behind a moment."""
    RAN: str
    """Write how the last runs of jobs ended."""

    def __init__(self, sql: Statements, reader: RowReader, load: SqlLoad) -> None:
        self._sql = sql
        self._reader = reader
        self._load = load

    def due(self, now: datetime, job_ids: Sequence[str]) -> Mapping[str, Fast]:
        due: dict[str, Fast] = {}
        for id, key, due_at, next_at, *job in self._asked(self.DUE, job_ids, micros(now)):
            record, due_time = self._reader.job(id, job_of, tuple(job)), moment(due_at)
            if record is None or record.foreign is not None:
                continue
            if now - due_time <= record.job.misfire_after:
                due[id] = Fast(record, FireRecord(key, id, due_time), when(next_at))
        return due

    def running(self, now: datetime, keys: Sequence[str]) -> Mapping[str, FireRecord]:
        fires = self._load.fires_of(self._asked(self.RUNNING, keys, micros(now)))
        return {fire.key: fire for fire in fires}

    def _asked(self, query: str, some: Sequence[str], at: int) -> Sequence[Any]:
        before, after = query.split("AMONG")
        values = [at] * before.count("?"), [at] * after.count("?")
        return self._sql.all(
            query.replace("AMONG", self._sql.AMONG), *values[0], self._sql.listed(some), *values[1]
        )

    def _note_ends(self, fires: Sequence[FireRecord]) -> None:
        runs = [(fire.job_id, run) for fire in fires if (run := LastRun.of(fire))]
        ends = [(id, *run_row(run), ticks(run.succeeded_at), int(run.is_failure)) for id, run in runs]
        self._sql.many(self.RAN, ends)
