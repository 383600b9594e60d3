"""Backfills and skips as JSON shapes."""

from __future__ import annotations

from fencepost.insight.views.shapes import Shape, time
from fencepost.model import Backfill, Skip
from fencepost.model.triggers import iso


def backfill_shape(job_id: str, backfill: Backfill) -> Shape:
    ended = sum(backfill.ended.values())
    return {
        "job_id": job_id,
        "name": backfill.name,
        "state": backfill.state,
        "since": iso(backfill.since),
        "until": iso(backfill.until),
        "limit": backfill.limit,
        "reverse": backfill.reverse,
        "only_missing": backfill.only_missing,
        "total": backfill.total,
        "passed": backfill.passed,
        "added": backfill.added,
        "ended": dict(backfill.ended),
        "left": 0 if not backfill.is_open else max(0, backfill.total - backfill.passed - ended),
        "by": backfill.by,
        "note": backfill.note,
        "created_at": time(backfill.created_at),
        "finished_at": time(backfill.finished_at),
    }


def skip_shape(skip: Skip) -> Shape:
    return {"due_at": iso(skip.due_at), "reason": skip.reason, "by": skip.by}
