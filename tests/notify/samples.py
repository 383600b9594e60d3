"""Notices for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fencepost.model.notices import Notice

AT = datetime(2026, 11, 17, 2, 31, 4, tzinfo=UTC)


def notice(cause: str = "failed", **given: Any) -> Notice:
    values: dict[str, Any] = {
        "id": f"n-{cause}",
        "cause": cause,
        "job_id": "report",
        "fire": "report@2026-11-17T02:30:00.000000Z",
        "state": {"missed": "missed", "lost": "lost", "failed": "failed"}.get(cause, "succeeded"),
        "reason": "raised an exception" if cause == "failed" else None,
        "error": "ValueError: no rows" if cause == "failed" else None,
        "at": AT,
        "count": 1,
        "details": {
            "due_at": "2026-11-17T02:30:00.000000Z",
            "started_at": "2026-11-17T02:30:01.500000Z",
            "attempt": 1,
            "replica": "web-1",
            "trigger": {"type": "cron", "expression": "30 2 * * *", "tz": "Europe/Zurich"},
            "dashboard_url": "https://ops.example.com/fencepost",
            "output_end": "reading\nno rows",
        },
    }
    return Notice(**(values | given))
