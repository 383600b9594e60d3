"""Records as JSON texts, as SQLite, PostgreSQL and Redis keep them. What rarely changes is read once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any, get_type_hints

from fencepost.model import Era, Job, JobRecord, Lease, ReplicaRecord, changed
from fencepost.store.codec import from_json, to_json
from fencepost.store.rows import TargetRecord

OUTCOME = ("last_run", "last_success_at", "failures_in_a_row")
HOT = ("token", "decided_through", "tail", *OUTCOME)
"""Fields of a job that change with every fire, kept beside the texts."""

_HINTS = get_type_hints(JobRecord)
_REST = [field.name for field in fields(JobRecord) if field.name not in (*HOT, "job")]
_DEFAULTS = {field.name: field.default for field in fields(JobRecord)}
_COLD = {name: _DEFAULTS[name] for name in HOT}

MOST_KEPT = 20_000
_jobs: dict[str, Job] = {}
_records: dict[tuple[str, str], JobRecord] = {}

_encode = json.JSONEncoder(separators=(",", ":")).encode


def text(value: Any) -> str:
    return _encode(to_json(value))


def read(kind: Any, value: str) -> Any:
    return from_json(kind, json.loads(value))


# --- jobs: a definition, the rest, and what is hot ------------------------------------------------------
#
# Most of a job never changes, and who writes a text need not read it again: what was written or read is remembered.


def texts_of(record: JobRecord) -> tuple[str, str]:
    """The definition, and the rest."""
    job = record.job
    values = {name: getattr(record, name) for name in _REST}
    rest = text({name: value for name, value in values.items() if value != _DEFAULTS.get(name, ...)})
    _remember(_jobs, job.text, job)
    if record.kept is None:  # which belongs to the caller, and may change in its hands
        _remember(_records, (job.text, rest), changed(record, **_COLD))
    return job.text, rest


def job_record(definition: str, rest: str) -> JobRecord:
    """Without what is hot."""
    texts = (definition, rest)
    if texts not in _records:
        values = {name: from_json(_HINTS[name], value) for name, value in json.loads(rest).items()}
        _remember(_records, texts, JobRecord(job=job_of(definition), **values))
    return _records[texts]


def job_of(definition: str) -> Job:
    if definition not in _jobs:
        _remember(_jobs, definition, read(Job, definition))
    return _jobs[definition]


def same_but_hot(one: JobRecord, other: JobRecord) -> bool:
    pairs = ((getattr(one, name), getattr(other, name)) for name in ("job", *_REST))
    return all(before is after or before == after for before, after in pairs)


def same_outcome(one: JobRecord | None, other: JobRecord) -> bool:
    """Whether no run has ended between the two; without the one: whether none has ever ended."""
    before = _COLD if one is None else one.__dict__
    return all(before[name] == getattr(other, name) for name in OUTCOME)


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= MOST_KEPT:
        known.clear()
    known[key] = value


class KnownJobs:
    """Jobs as they were read last, by id: a row that has not changed is the same object again. For those who read all
    jobs every few seconds, and must see quickly what is new."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._rows: dict[str, tuple[Any, JobRecord]] = {}

    def record(self, id: str, row: Any, read: Callable[[Any], JobRecord]) -> JobRecord:
        known = self._rows.get(id)
        if known is not None and known[0] == row:
            return known[1]
        if len(self._rows) >= self._most:
            self._rows.clear()
        record = read(row)
        self._rows[id] = row, record
        return record


# --- others -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=MOST_KEPT)
def target_record(value: str) -> TargetRecord:
    target: TargetRecord = read(TargetRecord, value)
    return target


@lru_cache(maxsize=100)
def replica_record(value: str) -> ReplicaRecord:
    replica: ReplicaRecord = read(ReplicaRecord, value)
    return replica


# --- what can be read of a text that cannot be as a whole -------------------------------------------------------


def fields_of(kind: Any, value: str) -> dict[str, Callable[[], Any]]:
    """How to read each field of a record by itself."""
    try:
        found = json.loads(value)
    except ValueError:
        return {}
    hints = get_type_hints(kind)
    here = [field.name for field in fields(kind) if isinstance(found, dict) and field.name in found]
    return {name: partial(from_json, hints[name], found[name]) for name in here}


def lease_fields(value: str) -> dict[str, Callable[[], Any]]:
    """With those of its era. What is at its default is not in the text."""
    found = fields_of(Lease, value)
    if not found:
        return {}
    era = json.loads(value).get("era", {})
    defaults: dict[str, Callable[[], Any]] = {
        "incarnation": int,
        "standing": lambda: "settled",
        "lost_through": lambda: None,
        "server": str,
        "term": int,
    }
    return {**defaults, **found, **(fields_of(Era, json.dumps(era)) if isinstance(era, dict) else {})}
