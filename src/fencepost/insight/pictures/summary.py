"""How many fires ended in which state, by bucket: the data of a bar chart, or of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from fencepost.errors import UsageError
from fencepost.insight.pictures.counting import read_and_counted
from fencepost.insight.pictures.tallies import HOUR, MINUTE, counted
from fencepost.insight.pictures.window import floor
from fencepost.insight.visible import Sees
from fencepost.store.base import Store

if TYPE_CHECKING:
    from fencepost.insight.reader import Reader

MOST_BUCKETS = 1_000


@dataclass(frozen=True, slots=True)
class Bucket:
    at: datetime
    """Where it begins."""
    states: Mapping[str, int]
    """Fires due in it, by state."""


@dataclass(frozen=True, slots=True)
class Summary:
    now: datetime
    since: datetime
    until: datetime
    bucket: timedelta
    counted_since: datetime
    """Fires due before that, in the window, are not counted: there are too many of them."""
    total: Mapping[str, int]
    items: tuple[Bucket, ...]
    """Oldest first. Buckets without fires are left out."""


async def summary(
    reader: Reader,
    store: Store,
    since: datetime,
    until: datetime,
    bucket: timedelta,
    job_id: str | None = None,
    sees: Sees | None = None,
) -> Summary:
    """Of one job, or of all: `until` is now at the latest."""
    now = (await reader.cluster()).now
    until = min(until, now + datetime.resolution)
    if since >= until:
        raise UsageError("since must be before until, and before now")
    if (until - since) / bucket > MOST_BUCKETS:
        raise UsageError(f"that is more than {MOST_BUCKETS} buckets; give a longer one, or a shorter window")
    unit = next((unit for unit in (HOUR, MINUTE) if not bucket % unit), None)
    if unit is None:
        found = await read_and_counted(store, floor(since, bucket), until, bucket, job_id, sees)
    else:
        found = await counted(reader, store, floor(since, bucket), until, unit, job_id, sees)
    buckets: dict[datetime, Counter[str]] = {}
    for at, states in found.by_bucket.items():
        if states:
            buckets.setdefault(floor(at, bucket), Counter()).update(states)
    items = tuple(Bucket(at, dict(buckets[at])) for at in sorted(buckets))
    return Summary(now, since, until, bucket, max(since, found.since), dict(found.total), items)
