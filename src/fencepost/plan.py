"""Expanding a calendar into fires. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice

from fencepost.model import CATCH_UP_LIMIT, Gap, JobRecord
from fencepost.store.base import Plan, Planned

STEPS = 5_000
"""Fires one expansion looks at. A longer backlog takes several, so that heartbeats get their turn."""


def expand(record: JobRecord, now: datetime, horizon: float, unknown: Sequence[Gap] = ()) -> Plan:
    """The next rows of the job's oldest unfinished calendar.

    Fires still to come are listed up to the horizon. Of those already due the newest hundred are listed one
    by one, which is as many as any policy would run; older ones become stretches that never cross the edge of
    a pause, so that each stretch will share one fate. No policy is decided here.
    """
    head = record.segments[0]
    end = now + timedelta(seconds=horizon)
    if head.until is not None:
        end = min(end, head.until)
    due: list[datetime] = []
    ahead: list[datetime] = []
    next_at: datetime | None = None
    for fire in islice(head.trigger.after(head.cursor), STEPS + 1):
        if fire > end or len(due) + len(ahead) == STEPS or len(ahead) == CATCH_UP_LIMIT:
            next_at = fire
            break
        (due if fire <= now else ahead).append(fire)
    caught_up = next_at is None or next_at > min(now, end)
    listed = due[-CATCH_UP_LIMIT:] if caught_up else []
    stretches = _stretches(due[: len(due) - len(listed)], [*record.pauses, *unknown])
    rows = (*stretches, *(Planned(fire, fire) for fire in [*listed, *ahead]))
    return Plan(record.id, head.version, head.cursor, head.until, rows, next_at)


def _stretches(fires: Sequence[datetime], gaps: Sequence[Gap]) -> list[Planned]:
    stretches: list[Planned] = []
    fate: list[bool] | None = None
    for fire in fires:
        its_fate = [gap.covers(fire) for gap in gaps]
        if stretches and its_fate == fate:
            last = stretches[-1]
            stretches[-1] = Planned(last.first, fire, last.count + 1)
        else:
            stretches.append(Planned(fire, fire))
        fate = its_fate
    return stretches
