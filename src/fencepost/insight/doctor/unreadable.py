"""Rows that cannot be read here, each with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencepost.insight.doctor.finding import Finding, problem, the_first, warning
from fencepost.store.unreadable import Unreadable

WRITTEN_ANEW = ("replica", "lease", "target")
"""Kinds of rows that the replicas rewrite by themselves."""


def unreadable(rows: Sequence[Unreadable]) -> Iterator[Finding]:
    found = ((warning if row.kind in WRITTEN_ANEW else problem)(row.summary, row.remedy) for row in rows)
    yield from the_first(found, "`fencepost status` lists them")
