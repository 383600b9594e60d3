"""Notices: what a person or a system outside learns of a job, one per cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fencepost.model.values import Json

Causes = frozenset[str]
ALERTS: Causes = frozenset({"failed", "missed", "lost", "recovered"})
"""What people want to know."""
EVERY_RUN: Causes = frozenset({"started", "succeeded", "failed", "missed", "lost"})
"""What systems that watch each run want to know."""


@dataclass(frozen=True)
class Notice:
    """One cause, to be delivered by one channel."""

    id: str
    """Derived from rule, job, cause and the fire that begins or ends it: the same after a crash."""
    cause: str
    """failed, missed, late, lost, recovered, failed_in_a_row, no_success; for each run also started, succeeded."""
    job_id: str
    fire: str | None
    """Its key."""
    state: str
    """Of the fire."""
    reason: str | None
    error: str | None
    """One line."""
    at: datetime
    """When the cause arose, by the store's clock."""
    count: int = 1
    """Failures in a row so far."""
    details: Mapping[str, Json] = field(default_factory=dict)
    """due_at, started_at, token, attempt, replica, trigger (as data), output_end …"""
