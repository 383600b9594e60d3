"""Debts: what a step owes to a job whose row cannot be read. The leader's sweep pays when the row can be read again.

In the entries of a store, which are read without the job's row:

    owed/<job>/<microseconds>/<fire>   a run has ended, and children wait for it: of this job, or this job itself

`<job>` and `<fire>` are digests; the text names both. There are never more than the ledger has rows. Where nothing is
owed a sweep costs one look (decision 0071).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

from fencepost.clock import Moment
from fencepost.model import job_of
from fencepost.store.codec import micros
from fencepost.store.rows import Rows

PREFIX = "owed/"
MOST_AT_ONCE = 100
"""Debts that one sweep pays."""


@dataclass(frozen=True, slots=True)
class Debt:
    job_id: str
    """Its row could not be read."""
    fire: str
    """The key of a run that has ended."""


def owe(rows: Rows, at: Moment, debt: Debt) -> None:
    rows.widen()
    text = json.dumps(asdict(debt), sort_keys=True)
    rows.entries.put(f"{_of(debt.job_id)}{micros(at.wall):020}/{_digest(debt.fire)}", text)


def payable(rows: Rows) -> Iterator[Debt]:
    """Each is dropped when the next one is asked for. Of a job that still cannot be read one is looked at."""
    after, paid = "", 0
    while paid < MOST_AT_ONCE and (page := rows.entries.page(PREFIX, after, 1)):
        [(after, text)] = page
        debt = _read(text)
        if debt is not None and _cannot_be_read(rows, debt):
            after = f"{_of(debt.job_id)}~"
            continue
        if debt is not None and rows.fires.get(debt.fire) is None:
            if rows.fires.is_broken(debt.fire):
                continue
            debt = None  # its row has outlived the retention
        if debt is not None:
            yield debt
        rows.entries.drop(after)
        paid += 1


def _cannot_be_read(rows: Rows, debt: Debt) -> bool:
    """A job that is set aside gets no fires, even if its own row can be read: one of its live fires may be the one."""
    missing = rows.jobs.get(debt.job_id) is None
    return rows.jobs.aside(debt.job_id) is not None and (missing or job_of(debt.fire) != debt.job_id)


def _of(job_id: str) -> str:
    return f"{PREFIX}{_digest(job_id)}/"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(text: str) -> Debt | None:
    """None: it is damaged."""
    with suppress(ValueError, TypeError):
        found = json.loads(text)
        if isinstance(found, dict) and all(isinstance(each, str) for each in found.values()):
            return Debt(**found)
    return None
