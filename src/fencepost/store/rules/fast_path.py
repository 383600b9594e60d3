"""The fast path: which fires are simply claimed, run and settled, so that a store can do it in bulk, without loading
all of their jobs. Everything else is decided on the general path.

There is one definition for all stores, `covered_from`. Each keeps what it says in one column of the job, written by the
general path, and adds only what is seen in the fires themselves: that one is due alone, was never claimed, and so on.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fencepost.model import JobRecord
from fencepost.model.triggers.following import parents_of
from fencepost.store.rows import TargetRecord

ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)


def covered_from(
    record: JobRecord,
    target: TargetRecord,
    decide_at: datetime | None,
    first_open: datetime | None,
    waits: bool,
) -> datetime | None:
    """From which due time on a fire of this job, if it is found in time and due alone, is simply claimed, and its end
    changes nothing for the job. None: not as things stand.

    `first_open`: when the first of its pending and queued fires is or was due. If that is not the moment of its next
    decision, something is held back, and the end of a run might let it go. `waits`: whether a fire waits to be run
    again; it may be held back as well."""
    head = record.segments[0] if record.segments else None
    gaps = (*record.pauses, *record.past, *target.gaps)
    if (
        waits
        # The next success ends an episode; and a channel that follows each run learns of each.
        or record.episodes
        or any(watch.each_run for watch in record.watch)
        or record.job.engine is not None
        or decide_at != first_open
        or record.job.jitter is not None
        or record.skips
        or any(each.is_open for each in record.backfills)
        or record.removed_at is not None
        or record.job.overlap.kind == "replace"
        or record.job.limits
        or record.children
        or parents_of(record.job.trigger)
        or target.orphaned
        or len(record.segments) > 1
        or (head is not None and (head.until is not None or head.removed))
        or any(gap.until is None for gap in gaps)
    ):
        return None
    return max((gap.until for gap in gaps if gap.until is not None), default=ALWAYS)
