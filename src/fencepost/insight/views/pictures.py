"""The pictures (`insight/pictures/`) as JSON."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from typing import Any

from fencepost.insight.pictures.lanes import Lane, Lanes, Mark
from fencepost.insight.pictures.overview import Overview
from fencepost.insight.pictures.planned import Tick
from fencepost.insight.pictures.replicas import Term
from fencepost.insight.pictures.summary import Summary
from fencepost.insight.views.shapes import Shape, time
from fencepost.model.triggers import iso


def overview_shape(found: Overview, store: str) -> Shape:
    return {"store": store, **plain(found)}


def lanes_shape(found: Lanes) -> Shape:
    """Without the lanes."""
    window = found.window
    return {
        "now": iso(window.now),
        "since": iso(window.since),
        "until": iso(window.until),
        "width_seconds": window.width.total_seconds(),
        "failures_since": iso(found.failures_since),
        "next": found.next,
    }


def lane_shape(lane: Lane) -> Shape:
    return {
        "job": lane.entry.shape,
        "marks": [_mark(mark) for mark in lane.marks],
        "planned": [_tick(tick) for tick in lane.planned],
        "exact": lane.exact,
    }


def _mark(mark: Mark) -> Shape:
    """Spelled out: there may be thousands of them."""
    return {
        "at": iso(mark.at),
        "key": mark.key,
        "state": mark.state,
        "reason": mark.reason,
        "refers_to": mark.refers_to,
        "due_at": iso(mark.due_at),
        "last_due_at": iso(mark.last_due_at),
        "started_at": time(mark.started_at),
        "finished_at": time(mark.finished_at),
        "late_seconds": mark.late_seconds,
        "attempt": mark.attempt,
        "replica": mark.replica,
        "error_line": mark.error_line,
        "count": mark.count,
        "states": dict(mark.states),
        "more": mark.more,
    }


def _tick(tick: Tick) -> Shape:
    return {"at": iso(tick.at), "due_at": iso(tick.due_at), "more": tick.more, "paused": tick.paused}


def summary_shape(found: Summary) -> Shape:
    shape = plain(found)
    return {**shape, "bucket_seconds": shape.pop("bucket")}


def term_shape(term: Term) -> Shape:
    shape: Shape = plain(term)
    return shape


def plain(value: Any) -> Any:
    """Values of dataclasses as JSON: times as ISO texts, durations as seconds."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value
