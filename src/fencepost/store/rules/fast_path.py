"""The fast path: which fires are simply claimed and settled, without reading all of their job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from fencepost.model import (
    Gap,
    JobRecord,
)


def is_covered(
    record: JobRecord, absences: Sequence[Gap], decide_at: datetime | None, waiting: Iterable[datetime]
) -> bool:
    """Whether a fire of this job that falls due alone, and is found in time, is simply claimed, and its end changes
    nothing for the job: no pause or absence of its task reaches beyond what has been decided, and nothing is held back
    beyond the moment that `waiting` tells of it, so that the end of a run might let it go."""
    decided = record.decided_through
    gaps = (*record.pauses, *record.past, *absences)
    return (
        record.removed_at is None
        and all(gap.until is not None and decided is not None and gap.until <= decided for gap in gaps)
        and all(decide_at is not None and moment >= decide_at for moment in waiting)
    )
