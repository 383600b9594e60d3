"""Expanding a calendar into fires. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice

from fencepost.model import CATCH_UP_LIMIT, Gap, JobRecord
from fencepost.store.base import Plan, Planned

STEPS = 5_000
"""Fires that one expansion enumerates at the most. A longer backlog takes several, so that heartbeats get their
turn."""


def expand(record: JobRecord, now: datetime, horizon: float, unknown: Sequence[Gap] = ()) -> Plan:
    """The next rows of the job's oldest unfinished calendar.

    Fires still to come are listed up to the horizon, at most a hundred at any time. Of those already due the
    newest hundred that no pause covers are listed one by one, which is as many as any policy would run; the
    others become stretches that never cross the edge of a pause, so that each stretch will share one fate. No
    policy is decided here.
    """
    head = record.segments[0]
    end = now + timedelta(seconds=horizon)
    if head.until is not None:
        end = min(end, head.until)
    room = CATCH_UP_LIMIT - (head.trigger.count_after(now, head.cursor) if head.cursor > now else 0)
    if room < CATCH_UP_LIMIT / 2 and head.next_at is not None and head.next_at > now:
        return Plan(record.id, head.version, head.cursor, head.until, (), head.next_at)
    due: list[datetime] = []
    ahead: list[datetime] = []
    next_at: datetime | None = None
    for fire in islice(head.trigger.after(head.cursor), STEPS + 1):
        if fire > end or len(due) + len(ahead) == STEPS or len(ahead) >= room:
            next_at = fire
            break
        (due if fire <= now else ahead).append(fire)
    if next_at is not None and next_at <= min(now, end):
        # There is more: the newest of these may belong to the hundred that are listed one by one.
        next_at, due = due[-CATCH_UP_LIMIT], due[:-CATCH_UP_LIMIT]
        listed = 0
    else:
        listed = CATCH_UP_LIMIT
    rows = (*_grouped(due, [*record.pauses, *unknown], listed), *(Planned(fire, fire) for fire in ahead))
    return Plan(record.id, head.version, head.cursor, head.until, rows, next_at)


def plans_of(record: JobRecord, now: datetime, horizon: float, gaps: Sequence[Gap] = ()) -> list[Plan]:
    """What is to be written for a job: the next rows of its calendar and of its backfills, where there are any."""
    plans = _feeds(record)
    if record.segments:
        plan = expand(record, now, horizon, gaps)
        if plan.rows or plan.next_at != record.segments[0].next_at:
            plans.append(plan)
    return plans


def _feeds(record: JobRecord) -> list[Plan]:
    plans = []
    for backfill in record.backfills:
        if not backfill.wants_rows or backfill.trigger.foreign is not None:
            continue
        due = backfill.next_due(backfill.page // 2 + 1)
        rows, more = due[: backfill.page // 2], due[backfill.page // 2 :]
        planned = tuple(Planned(fire, fire) for fire in rows)
        next_at = more[0] if more else None
        plans.append(Plan(record.id, 0, backfill.cursor, None, planned, next_at, backfill.name))
    return plans


def _grouped(fires: Sequence[datetime], gaps: Sequence[Gap], listed: int) -> list[Planned]:
    """The newest `listed` ones outside of every gap each alone, the others in stretches of one fate."""
    fates = [tuple(gap.covers(fire) for gap in gaps) for fire in fires]
    outside = [number for number, fate in enumerate(fates) if not any(fate)]
    alone = set(outside[max(0, len(outside) - listed) :])
    rows: list[Planned] = []
    for number, fire in enumerate(fires):
        joins = (
            number and number not in alone and number - 1 not in alone and fates[number] == fates[number - 1]
        )
        if joins:
            rows[-1] = Planned(rows[-1].first, fire, rows[-1].count + 1)
        else:
            rows.append(Planned(fire, fire))
    return rows
