"""Histories as compressed JSON lines; `read.py` says what is in them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fencepost.model import FireRecord
from fencepost.model.triggers.times import iso
from tests.cluster.harness import History
from tests.protocol.sim.simulation import Result


def write(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """The same lines give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as file:
        for line in lines:
            file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


def of_seed(result: Result) -> dict[str, Any]:
    return {
        "kind": "simulation",
        "seed": result.seed,
        "digest": result.digest,
        "seconds": round(result.seconds, 3),
        "rows": result.fires,
        "runs": result.runs,
        "faults": dict(sorted(result.faults.items())),
        "violations": result.violations,
    }


def of_simulation(result: Result) -> Iterator[dict[str, Any]]:
    yield of_seed(result)
    for line in result.trace:
        at, who, what = line[:9], line[10:18], line[19:]
        yield {"at": float(at), "who": who.strip(), "what": what}


def of_processes(header: dict[str, Any], history: History) -> Iterator[dict[str, Any]]:
    yield {"kind": "soak", **header}
    for job, times in sorted(history.due.items()):
        if times:
            yield {"type": "due", "job": job, "times": [iso(time) for time in times]}
    for mark in sorted(history.marks, key=lambda mark: mark.steady):
        fields = asdict(mark)
        yield {"type": fields.pop("what"), **fields}
    for fault in history.faults:
        yield {"type": "fault", **asdict(fault)}
    for fire in sorted(history.fires, key=lambda fire: fire.key):
        yield {"type": "row", **_row(fire)}


def _row(fire: FireRecord) -> dict[str, Any]:
    return {
        "key": fire.key,
        "job": fire.job_id,
        "due_at": iso(fire.due_at),
        "state": fire.state,
        "reason": fire.reason,
        "count": fire.count,
        "last_due_at": iso(fire.last_due_at) if fire.last_due_at else None,
        "attempts": [
            {"token": each.token, "replica": each.replica, "outcome": each.outcome} for each in fire.attempts
        ],
    }
