"""What did not happen: a fire that has not started, a job without a success for too long. The leader looks for it.

Costs follow what may be overdue: the reply says when each job must be looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fencepost.clock import Moment
from fencepost.model import FireRecord, JobRecord
from fencepost.store.base import JobPage
from fencepost.store.outbox import Checked
from fencepost.store.rows import Rows
from fencepost.store.rules import outbox
from fencepost.store.rules.leadership import is_leader
from fencepost.store.rules.ledger import keep
from fencepost.store.rules.notify_rules import stored_rules, watched


def watch_jobs(
    rows: Rows, at: Moment, by: str, term: int, page: JobPage | None = None, ids: Sequence[str] = ()
) -> Checked | None:
    """Some jobs get the rules that hold now, and what did not happen is put into the outbox. None: `term` is not
    current."""
    if not is_leader(rows, by, term):
        return None
    found = rows.jobs.ids(page) if page is not None else list(ids)
    rows.preload(at.wall, jobs=found)
    rules = stored_rules(rows)
    next_in: dict[str, float] = {}
    for id in found:
        record = rows.jobs.get(id)
        if record is None or record.removed_at or record.limit or rows.jobs.aside(id):
            continue
        after = _with_absences(rows, at, watched(rules, record), next_in)
        if after is not record:
            keep(rows, at, after)
    more = page is not None and len(found) == page.limit
    return Checked(at.wall, found[-1] if more else "", next_in)


def _with_absences(rows: Rows, at: Moment, record: JobRecord, next_in: dict[str, float]) -> JobRecord:
    for watch in record.watch:
        for cause, limit in watch.absences:
            since, fire = _late(rows, at, record) if cause == "late" else (_silent_since(at, record), None)
            if since is not None and at.wall - since >= limit:
                record = outbox.begin(rows, at, watch, record, cause, fire)
            left = limit - (at.wall - since) if since is not None and at.wall - since < limit else limit
            next_in[record.id] = min(next_in.get(record.id, left.total_seconds()), left.total_seconds())
    return record


def _late(rows: Rows, at: Moment, record: JobRecord) -> tuple[datetime | None, FireRecord | None]:
    """Since when the first fire that should have started waits; or when the next one will."""
    if record.paused_at(at.wall):
        return None, None
    due = [fire for fire in rows.fires.due(record.id, at.wall) if fire.scheduled]
    if due:
        return due[0].due_at, due[0]
    return rows.fires.next_planned(record.id, at.wall), None


def _silent_since(at: Moment, record: JobRecord) -> datetime | None:
    """Since when a job had no success that it could have had."""
    if record.paused_at(at.wall):
        return None
    ends = [gap.until for gap in record.pauses if gap.until is not None and gap.until <= at.wall]
    return max((record.last_success_at or record.created_at, *ends))
