"""The rules of the time zones, and the zones that stored jobs use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.insight.audit.zones import tzdata_version
from fencepost.insight.doctor.finding import Finding, ok
from fencepost.model import JobRecord


def zones(records: Sequence[JobRecord]) -> Iterator[Finding]:
    """Jobs whose zone is not known here are reported as unreadable."""
    yield ok(f"tzdata {tzdata_version()}")
    triggers = [record.job.trigger for record in records if record.job.trigger is not None]
    names = sorted({trigger.local_zone for trigger in triggers if trigger.local_zone})
    if names:
        yield ok(
            f"the zones of stored jobs are known here: {', '.join(names[:10])}{', …' * (len(names) > 10)}"
        )
