"""Records as JSON texts, as SQLite, PostgreSQL and Redis keep them. What rarely changes is read once."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from typing import Any, get_type_hints

from fencepost.model import Job, JobRecord, ReplicaRecord
from fencepost.store.codec import from_json, to_json
from fencepost.store.rows import TargetRecord

HOT = ("token", "decided_through", "tail")
"""Fields of a job that change with every fire, kept beside the texts."""

_HINTS = get_type_hints(JobRecord)
_REST = [field.name for field in fields(JobRecord) if field.name not in (*HOT, "job")]
_DEFAULTS = {field.name: field.default for field in fields(JobRecord)}

_jobs_read: dict[str, Job] = {}
MOST_JOBS_KEPT = 20_000


def text(value: Any) -> str:
    return json.dumps(to_json(value), separators=(",", ":"))


def read(kind: Any, value: str) -> Any:
    return from_json(kind, json.loads(value))


# --- jobs: a definition, the rest, and what is hot ------------------------------------------------------


def definition_of(record: JobRecord) -> str:
    """Most of a job never changes. Who writes a definition need not read it again."""
    definition = text(record.job)
    _remember(definition, record.job)
    return definition


def rest_of(record: JobRecord) -> str:
    values = {name: getattr(record, name) for name in _REST}
    return text({name: value for name, value in values.items() if value != _DEFAULTS.get(name, ...)})


@lru_cache(maxsize=MOST_JOBS_KEPT)
def job_record(definition: str, rest: str) -> JobRecord:
    """Without what is hot."""
    values = {name: from_json(_HINTS[name], value) for name, value in json.loads(rest).items()}
    return JobRecord(job=job_of(definition), **values)


def job_of(definition: str) -> Job:
    if definition not in _jobs_read:
        _remember(definition, read(Job, definition))
    return _jobs_read[definition]


def same_but_hot(one: JobRecord, other: JobRecord) -> bool:
    pairs = ((getattr(one, name), getattr(other, name)) for name in ("job", *_REST))
    return all(before is after or before == after for before, after in pairs)


def _remember(definition: str, job: Job) -> None:
    if len(_jobs_read) >= MOST_JOBS_KEPT:
        _jobs_read.clear()
    _jobs_read[definition] = job


# --- others -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=20_000)
def target_record(value: str) -> TargetRecord:
    target: TargetRecord = read(TargetRecord, value)
    return target


@lru_cache(maxsize=100)
def replica_record(value: str) -> ReplicaRecord:
    replica: ReplicaRecord = read(ReplicaRecord, value)
    return replica
