"""The rules of the time zones, and the zones that stored jobs use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.audit.zones import tzdata_version
from fencepost.doctor.finding import Finding, ok, problem
from fencepost.errors import ConfigurationError
from fencepost.model import JobRecord


def zones(records: Sequence[JobRecord]) -> Iterator[Finding]:
    """A job whose zone is unknown cannot even be read: these can be loaded here."""
    yield ok(f"tzdata {tzdata_version()}")
    names = sorted({tz for record in records if (tz := getattr(record.job.trigger, "tz", None))})
    if names:
        yield ok(
            f"the zones of stored jobs are known here: {', '.join(names[:10])}{', …' * (len(names) > 10)}"
        )


def unreadable(error: ConfigurationError) -> Iterator[Finding]:
    yield ok(f"tzdata {tzdata_version()}")
    yield problem(
        f"the stored jobs cannot be read here: {error}",
        "a replica here fails, too: install a newer tzdata (pip install -U tzdata), or what the message names",
    )
