"""An audit's report as JSON, and its verdict in a sentence."""

from __future__ import annotations

from fencepost.insight.audit.report import AuditFinding, AuditResult, Kind
from fencepost.insight.views.shapes import Shape, event_shape, time
from fencepost.insight.views.unreadable import unreadable_shape
from fencepost.insight.visible import EVERYTHING, Sight
from fencepost.model import State
from fencepost.model.triggers import iso

MEANS = {
    Kind.UNACCOUNTED: "in no row of the ledger",
    Kind.DOUBLED: "in two rows, or run twice",
    Kind.OUTSIDE: "in the ledger, but in no calendar",
    Kind.PAUSE_IGNORED: "claimed although the job was paused",
    Kind.TOKENS: "with a token that does not increase",
    Kind.OVERDUE: "due, and decided by no replica",
}


def report_shape(report: AuditResult, sight: Sight = EVERYTHING) -> Shape:
    return {
        "clean": report.clean,
        "now": iso(report.now),
        "since": iso(report.since),
        "until": iso(report.until),
        "kept_since": iso(report.kept_since),
        "tzdata": report.tzdata,
        "data_lost_through": time(report.lost_through),
        "jobs": report.jobs,
        "manual": report.manual,
        "backfilled": report.backfilled,
        "expected": report.expected,
        **fates(report),
        "found": {kind.value: report.found[kind] for kind in Kind},
        **{
            kind.value: [_finding_shape(finding, sight) for finding in report.findings[kind]] for kind in Kind
        },
        "history": [{"job_id": event.job_id, **event_shape(sight.event(event))} for event in report.events],
        "history_found": report.events_found,
        "unreadable": [unreadable_shape(row) for row in report.unreadable],
        "history_known_after": {id: time(moment) for id, moment in sorted(report.forgotten.items())},
    }


def _finding_shape(finding: AuditFinding, sight: Sight) -> Shape:
    return {
        "key": finding.key,
        "job_id": finding.job_id,
        "due_at": iso(finding.due_at),
        "last_due_at": iso(finding.last_due_at or finding.due_at),
        "count": finding.count,
        "why": sight.text(finding.why),
    }


def fates(report: AuditResult) -> dict[str, int]:
    return {
        "ran": report.ran,
        **{state.value: report.states[state] for state in NEVER_ENDED},
        "pending": report.pending,
    }


NEVER_ENDED = (State.SKIPPED, State.MISSED, State.LOST, State.CANCELLED)


def verdict(report: AuditResult, shown: int | None = None) -> str:
    if report.unreadable and not report.found.total() and not report.clean:
        jobs = sorted({row.job_id for row in report.unreadable if row.job_id})
        return (
            f"All that could be checked is accounted for once; not all of {', '.join(jobs[:10])} can be read."
        )
    if report.clean:
        open_ = f", {report.pending} of them not final yet" if report.pending else ""
        return f"Every fire that was due is accounted for once{open_}."
    wrong = "; ".join(f"{report.found[kind]} {MEANS[kind]}" for kind in Kind if report.found[kind])
    listed = sum(map(len, report.findings.values()))
    more = ""
    if shown is not None and listed > shown:
        more = f" Shown are {shown} of {listed} findings: --json lists them."
    remedy = ""
    if report.found[Kind.OVERDUE]:
        remedy = (
            " Start a replica, or see `fencepost status`: what is overdue waits for a replica to decide it."
        )
    if report.found.keys() - {Kind.OVERDUE}:
        remedy += " The ledger is not sound: keep a copy of the store before anything else."
    return f"Not every fire is accounted for once: {wrong}.{more}{remedy}"
