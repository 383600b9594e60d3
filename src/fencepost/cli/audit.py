"""`fencepost audit`: is every fire that was due accounted for exactly once?"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import click

from fencepost.cli import completing
from fencepost.cli.counter import counter
from fencepost.cli.output import emit, facts, length, note, say, table, when
from fencepost.cli.source import CommandSource, json_option, no_such_job, takes
from fencepost.insight.audit import AuditFinding, AuditResult, Kind
from fencepost.insight.audit import audit as make_audit
from fencepost.insight.audit.pages import Progress as StreamEvent
from fencepost.insight.audit.shapes import fates, report_shape, verdict
from fencepost.insight.views.times import ago
from fencepost.model.triggers import iso
from fencepost.store.base import Store

SHOWN = 50
"""Findings of each kind that are shown; --json has up to a thousand."""


@click.command()
@takes()
@click.option("--since", help="Fires due at or after this ISO time, or so long ago: 2h. Default: 24h.")
@click.option("--until", help="Fires due before this ISO time, or so long ago. Default: now.")
@click.option("--job", help="Only this job.", shell_complete=completing.jobs)
@json_option
def audit(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    since: str | None,
    until: str | None,
    job: str | None,
    as_json: bool,
) -> int:
    """Check that every fire that was due is accounted for once.

    What was due is worked out again from the recorded history of the jobs, and compared with the ledger. Exits 1
    and lists what is wrong.
    """
    source = CommandSource.of(words, (), url, namespace)
    asked: list[datetime] = []

    async def read(store: Store, progress: StreamEvent | None) -> AuditResult:
        now = (await store.roster()).now
        if job is not None and not await store.history(job):
            raise await no_such_job(store, job)
        asked.extend([ago(since, now, "--since")] if since else [])
        return await make_audit(
            store,
            since=asked[0] if asked else None,
            until=ago(until, now, "--until") if until else None,
            job_id=job,
            retention=source.settings.retention,
            progress=progress,
        )

    with counter() as progress:
        report = source.ask(lambda store: read(store, progress))
    if asked and asked[0] < report.since:
        kept = length(source.settings.retention)
        note(f"the ledger keeps {kept}: only what was due from {when(report.since)} on was checked")
    if report.lost_through is not None and report.lost_through >= report.since:
        note(
            f"the store lost data before {when(report.lost_through)}: what it has forgotten cannot be checked"
        )
    _note_forgotten(report)
    if as_json:
        emit(report_shape(report))
    else:
        tell(report, source.scheduler.store_name)
    return 0 if report.clean else 1


def _note_forgotten(report: AuditResult) -> None:
    if report.forgotten:
        names = ", ".join(sorted(report.forgotten)[:5]) + (", …" if len(report.forgotten) > 5 else "")
        note(
            f"the history of {len(report.forgotten)} jobs ({names}) is not kept as far back as the window: their "
            "earlier fires were not compared with a calendar"
        )


# --- for people -----------------------------------------------------------------------------------------


def tell(report: AuditResult, store: str) -> None:
    kinds = Counter(event.kind for event in report.events)
    changes = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    more = f" (of the first {len(report.events)})" if report.events_found > len(report.events) else ""
    facts(
        [
            ("store", store),
            (
                "window",
                f"{when(report.since)} to {when(report.until)}, {length(report.until - report.since)}",
            ),
            ("zones", f"tzdata {report.tzdata}"),
            ("jobs", report.jobs),
            ("history", f"{changes}{more}" if changes else "unchanged in the window"),
            ("due", report.expected),
            *((name, count) for name, count in fates(report).items() if count),
            ("by hand", report.manual or None),
            ("of them in backfills", report.backfilled or None),
        ]
    )
    rows = [finding for kind in Kind for finding in report.findings[kind][:SHOWN]]
    if rows:
        table(("fire", "what", "fires", "why"), map(_row, rows))
    for row in report.unreadable[:SHOWN]:
        say(f"unreadable: {row.summary}; {row.remedy}")
    say(verdict(report, len(rows)))


def _row(finding: AuditFinding) -> tuple[Any, ...]:
    why = finding.why
    if finding.count > 1:
        why += f"; {finding.count} fires through {when(finding.last_due_at)}"
    return finding.key or f"{finding.job_id}@{iso(finding.due_at)}", finding.kind, finding.count, why
