"""What an import has found, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from fencepost.cli.migrate.compare import Comparison, FireDifference
from fencepost.cli.migrate.values import Carried, Imported
from fencepost.model.triggers import iso

SHOWN = 4
"""Moments of a difference that people are shown; JSON has all."""


@dataclass(frozen=True)
class ImportReport:
    kind: str
    file: str
    imported: Imported
    comparisons: Sequence[Comparison]

    @property
    def complete(self) -> bool:
        """Everything was carried over, and fires as before. What differs only when the clock changes is reported, no
        more."""
        return not self.imported.left_out and not any(found.difference for found in self.comparisons)


def lines_of(report: ImportReport) -> Iterator[str]:
    imported = report.imported
    total = len(imported.jobs) + len(imported.left_out)
    yield ""
    yield f"{report.file}: {len(imported.jobs)} of {total} entries carried over."
    for job, found in zip(imported.jobs, report.comparisons, strict=True):
        yield ""
        yield from _job(job, found)
    if imported.left_out:
        yield "\nNot carried over:"
        for entry in imported.left_out:
            yield f"  {entry.origin}: {entry.text}\n    {entry.why}\n    → {entry.remedy}"
    if imported.notes:
        yield "\nOther than before, for all of them:"
        for note in imported.notes:
            yield f"  {note.what}: {note.why}\n    → {note.remedy}"


def _job(job: Carried, found: Comparison) -> Iterator[str]:
    yield f"{job.id}  ({job.origin})"
    yield f"  was      {job.schedule}"
    yield f"  becomes  {job.trigger.describe()}"
    if found.difference:
        yield f"  DIFFERS  among the next fires: {_difference(found.difference)}"
    elif found.new:
        fires = "the next fire is" if len(found.new) == 1 else f"the next {len(found.new)} fires are"
        yield f"  equal    {fires} the same: {' … '.join(map(_moment, (*found.new[:1], *found.new[1:][-1:])))}"
    else:
        yield "  equal    it has no more fires"
    if found.at_changes:
        yield f"  differs  when the clock changes: {_difference(found.at_changes)}"
    for note in job.notes:
        yield f"  note     {note.what}: {note.why}\n           → {note.remedy}"


def _difference(found: FireDifference) -> str:
    parts = []
    for label, fires in (("only before", found.only_old), ("only now", found.only_new)):
        if fires:
            more = f" and {len(fires) - SHOWN} more" if len(fires) > SHOWN else ""
            parts.append(f"{label} {', '.join(map(_moment, fires[:SHOWN]))}{more}")
    return "; ".join(parts)


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


def as_shape(report: ImportReport, code: str | None) -> dict[str, Any]:
    return {
        "kind": report.kind,
        "file": report.file,
        "complete": report.complete,
        "jobs": [
            _shape(job, found) for job, found in zip(report.imported.jobs, report.comparisons, strict=True)
        ],
        "left_out": [asdict(entry) for entry in report.imported.left_out],
        "notes": [asdict(note) for note in report.imported.notes],
        "code": code,
    }


def _shape(job: Carried, found: Comparison) -> dict[str, Any]:
    return {
        "id": job.id,
        "origin": job.origin,
        "was": job.schedule,
        "trigger": job.trigger.to_json(),
        "policies": dict(job.policies),
        "fires": {
            "old": [iso(fire) for fire in found.old],
            "new": [iso(fire) for fire in found.new],
            "only_old": [iso(fire) for fire in found.difference.only_old],
            "only_new": [iso(fire) for fire in found.difference.only_new],
        },
        "at_clock_changes": {
            "only_old": [iso(fire) for fire in found.at_changes.only_old],
            "only_new": [iso(fire) for fire in found.at_changes.only_new],
        },
        "notes": [asdict(note) for note in job.notes],
    }
