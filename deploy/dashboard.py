"""The dashboard of Grafana, from the definitions of the metrics: one panel after the other, two in a row."""

from __future__ import annotations

from typing import Any

from fencepost.insight.metrics import definitions as m
from fencepost.insight.metrics.definitions import Metric

JOB = 'job_name=~"$job_name"'
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH, HEIGHT = 12, 8

Query = tuple[str, str]
"""An expression, and how its series are called."""
Panel = dict[str, Any]


def rate(metric: Metric, *by: str, where: str = "") -> Query:
    names = ", ".join(by)
    return (
        f"sum by ({names}) (rate({metric.exported}{_only(where)}[$__rate_interval]))",
        _legend(by) or metric.name,
    )


def quantile(q: float, metric: Metric, *by: str, where: str = "") -> Query:
    names = ", ".join(("le", *by))
    series = f"rate({metric.exported}_bucket{_only(where)}[$__rate_interval])"
    return f"histogram_quantile({q}, sum by ({names}) ({series}))", f"p{q * 100:g} {_legend(by)}".strip()


def value(metric: Metric, *by: str, how: str = "max", where: str = "") -> Query:
    """Of metrics that come from the store all processes say the same."""
    names = f" by ({', '.join(by)})" if by else ""
    return f"{how}{names} ({metric.exported}{_only(where)})", _legend(by) or metric.name


def until(metric: Metric) -> Query:
    expr, legend = value(metric, m.JOB, how="min", where=JOB)
    return f"{expr} - time()", legend


def since(metric: Metric) -> Query:
    expr, legend = value(metric, m.JOB, where=JOB)
    return f"time() - {expr}", legend


def _only(where: str) -> str:
    return f"{{{where}}}" if where else ""


def _legend(by: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{name}}}}}" for name in by)


PANELS: tuple[tuple[str, str, str, tuple[Query, ...]], ...] = (
    # title, kind, unit, queries
    ("Is there a leader", "stat", "short", (value(m.LEADER, how="sum"),)),
    ("Replicas", "timeseries", "short", (value(m.REPLICAS, "state"),)),
    ("Ready and store", "timeseries", "short", (value(m.READY, "instance"), value(m.STORE_UP, "instance"))),
    ("Jobs", "timeseries", "short", (value(m.JOBS, "state"),)),
    ("Runs by outcome", "timeseries", "ops", (rate(m.RUNS, "outcome", where=JOB),)),
    ("Runs in progress", "timeseries", "short", (value(m.IN_PROGRESS, "instance"),)),
    (
        "Lateness: from due to started",
        "timeseries",
        "s",
        (quantile(0.5, m.DELAY, where=JOB), quantile(0.99, m.DELAY, where=JOB)),
    ),
    ("Waiting for the run before", "timeseries", "s", (quantile(0.99, m.QUEUED, m.JOB, where=JOB),)),
    ("Duration p95", "timeseries", "s", (quantile(0.95, m.DURATION, m.JOB, where=JOB),)),
    ("Failures in a row", "timeseries", "short", (value(m.FAILURES, m.JOB, where=JOB),)),
    ("Until the next run; below zero, overdue", "timeseries", "s", (until(m.NEXT_RUN),)),
    ("Since the last success", "timeseries", "s", (since(m.LAST_SUCCESS),)),
    ("Missed and skipped", "timeseries", "ops", (rate(m.MISFIRES, "policy"), rate(m.SKIPS, "reason"))),
    ("Retries", "timeseries", "ops", (rate(m.RETRIES, m.JOB, where=JOB),)),
    ("Age of a pipeline's data", "timeseries", "s", (since(m.DATA_UPDATED),)),
    (
        "Blocking the application; unreadable jobs",
        "timeseries",
        "short",
        (value(m.BLOCKING, m.JOB), value(m.UNREADABLE, m.JOB)),
    ),
    ("Store: duration p99", "timeseries", "s", (quantile(0.99, m.STORE_SECONDS, "operation"),)),
    ("Store: errors", "timeseries", "ops", (rate(m.STORE_ERRORS, "operation"),)),
    (
        "Claims, fencing, leases lost",
        "timeseries",
        "ops",
        (rate(m.CLAIMS, "result"), rate(m.REJECTIONS), rate(m.LEASE_LOST)),
    ),
    (
        "Clock skew; loops that keep failing",
        "timeseries",
        "short",
        (value(m.SKEW, "instance"), value(m.DEGRADED, "instance", "loop")),
    ),
    (
        "Notices: waiting, set aside",
        "timeseries",
        "short",
        (value(m.OUTBOX_WAITING, "channel"), value(m.OUTBOX_ASIDE, "channel")),
    ),
    ("Notices by result", "timeseries", "ops", (rate(m.NOTIFICATIONS, "channel", "result"),)),
    ("Notices: age of the oldest that is stuck", "timeseries", "s", (value(m.OUTBOX_OLDEST, "channel"),)),
    ("Versions", "timeseries", "short", (value(m.BUILD, "version", how="sum"),)),
)


def dashboard() -> dict[str, Any]:
    return {
        "uid": "fencepost",
        "title": "Fencepost",
        "tags": ["fencepost"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_sources(), _jobs()]},
        "panels": [_panel(number, *each) for number, each in enumerate(PANELS)],
    }


def queries() -> list[str]:
    """All expressions, as Prometheus gets them."""
    found = [expr for _, _, _, asked in PANELS for expr, _ in asked]
    return [each.replace("$__rate_interval", "5m").replace("$job_name", ".*") for each in found]


def _panel(number: int, title: str, kind: str, unit: str, asked: tuple[Query, ...]) -> Panel:
    row, column = divmod(number, 2)
    return {
        "id": number + 1,
        "title": title,
        "type": kind,
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": column * WIDTH, "y": row * HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expr, "legendFormat": legend, "datasource": SOURCE}
            for place, (expr, legend) in enumerate(asked)
        ],
    }


def _sources() -> Panel:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _jobs() -> Panel:
    asked = f"label_values({m.NEXT_RUN.exported}, {m.JOB})"
    return {
        "name": "job_name",
        "label": "Job",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": asked, "refId": "jobs"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
