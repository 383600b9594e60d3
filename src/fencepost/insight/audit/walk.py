"""The audit itself: the ledger once through, each row to its job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fencepost.errors import UsageError
from fencepost.insight.audit.chains import Chains
from fencepost.insight.audit.job import Absent, JobAudit
from fencepost.insight.audit.pages import Progress, Rest, oldest_first, page_before
from fencepost.insight.audit.report import AuditResult
from fencepost.insight.audit.zones import tzdata_version
from fencepost.model import FireRecord, JobEvent, JobRecord
from fencepost.model.triggers import EARLIEST, as_utc, iso, stored_trigger
from fencepost.store.base import FireQuery, Roster, Store

DEFAULT_WINDOW = timedelta(days=1)
RETENTION = timedelta(days=30)
MARGIN = timedelta(minutes=10)
"""Rows that the retention will delete within this time are left out: they could vanish during the audit."""

MOST_BEHIND = 10_000


async def audit(
    store: Store,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    job_id: str | None = None,
    retention: timedelta = RETENTION,
    progress: Progress | None = None,
    sees: Callable[[str], bool] | None = None,
    rest: Rest | None = None,
) -> AuditResult:
    """Check every fire that was due in [since, until) against the ledger. Without `since`: in the last 24 hours.

    `retention` is the one the replicas run with: what is older may have been forgotten, and is left out.
    `sees`: only jobs with such an id. `rest`: awaited after each step, where others use the store and the thread.
    """
    roster = await store.roster()
    report = _window(roster.now, since, until, retention)
    report.lost_through = roster.leader.era.lost_through
    if report.since >= report.until:
        raise UsageError(
            f"nothing lies between {iso(report.since)} and {iso(report.until)}: since must be before until and "
            f"before now, and until after {iso(report.kept_since)}, from when on the ledger is kept"
        )
    known_targets = await _live_targets(store, roster)
    walk = LedgerWalk(store, report, job_id, sees, known_targets, progress or _silently, rest or _at_once)
    await walk.begin()
    async for page in oldest_first(store, report.since, report.until, walk.progress, walk.rest):
        await walk.page(page)
    await walk.finish()
    return report


@dataclass
class LedgerWalk:
    store: Store
    report: AuditResult
    only: str | None
    sees: Callable[[str], bool] | None
    known_targets: set[str] | None
    """Tasks that live replicas know; None: no replica is alive."""
    progress: Progress
    rest: Rest
    jobs: dict[str, JobAudit] = field(default_factory=dict)
    _heads: dict[str, list[Absent]] = field(default_factory=lambda: defaultdict(list))
    """By job: fires at the beginning of the window that perhaps an older row stands for."""
    _records: dict[str, JobRecord] = field(default_factory=dict)
    _unchecked: set[str] = field(default_factory=set)
    _chains: Chains = field(default_factory=lambda: Chains({}))

    async def begin(self) -> None:
        # Calendars that are behind are those of removed jobs as well: they still owe rows.
        behind = (await self.store.due_jobs(0, MOST_BEHIND)).jobs
        records = await self.store.jobs(None if self.only is None else [self.only])
        self._records = {record.id: record for record in (*behind, *records)}
        self._chains = Chains({record.id: record for record in records})
        ids = sorted(self._records) if self.only is None else [self.only]
        ids = [id for id in ids if self._is_wanted(id)]
        for number, id in enumerate(ids):
            await self._job(id)
            if number % 100 == 99:
                self.progress("reading the jobs' histories", number + 1, len(ids))
                await self.rest()

    def _is_wanted(self, id: str) -> bool:
        return (self.only is None or id == self.only) and (self.sees is None or self.sees(id))

    async def page(self, rows: Iterable[FireRecord]) -> None:
        for fire in rows:
            self._chains.row(fire)
            if fire.job_id not in self._unchecked and self._is_wanted(fire.job_id):
                # A job that was removed is met here first.
                job = self.jobs.get(fire.job_id) or await self._job(fire.job_id)
                if job is not None:
                    job.row(fire)
        await self._check_absent()

    async def finish(self) -> None:
        for job in self.jobs.values():
            job.finish()
        await self._check_absent()
        await self._read_further_back()
        for finding in self._chains.missing(self.report.now):
            if self._is_wanted(finding.job_id) and finding.job_id not in self._unchecked:
                self.report.find(finding)
        self.report.jobs = len(self.jobs)
        rows = self.store.unreadable.rows
        self.report.unreadable = [
            row for row in rows if self.sees is None or (row.job_id and self.sees(row.job_id))
        ]
        for findings in self.report.findings.values():
            findings.sort(key=lambda finding: (finding.due_at, finding.job_id))

    async def _job(self, id: str) -> JobAudit | None:
        """None: its definition or its history cannot be read here, so the audit cannot work out what was due."""
        history, record = await self.store.history(id), self._records.get(id)
        if id in self._not_readable(history):
            self._unchecked.add(id)
            return None
        orphaned = (
            record is not None
            and self.known_targets is not None
            and record.job.lane not in self.known_targets
        )
        self.report.note(history)
        self.jobs[id] = JobAudit(id, history, record, orphaned, self.report)
        return self.jobs[id]

    def _not_readable(self, history: Sequence[JobEvent]) -> set[str]:
        """Of the job of this history, and of all others met so far."""
        rows = [row for row in self.store.unreadable.rows if row.kind in ("job", "event")]
        foreign = {
            event.job_id for event in history if event.trigger and stored_trigger(event.trigger).foreign
        }
        return {row.job_id for row in rows if row.job_id} | foreign

    async def _check_absent(self) -> None:
        """A replica joins fires that never started to the row before them, also during the audit. So that row is read
        again: it may have grown, and may now cover the fires that seemed to have no row."""
        for job in self.jobs.values():
            for absent in job.absent:
                before = absent.before
                if before is None:
                    self._heads[job.job_id].append(absent)
                elif before.token:  # it was claimed, and stands for itself
                    job.judge(absent)
                else:
                    again = await self.store.find_fires(FireQuery(key=before.key))
                    self._judge(job, [absent], again[0] if again else None)
            job.absent.clear()

    async def _read_further_back(self) -> None:
        """A row that begins before the window may cover the first fires in it, so read rows from before the window."""
        edge, rows = self.report.since, 0
        while self._heads and edge > EARLIEST:
            page, edge = await page_before(self.store, edge)
            rows += len(page)
            self.progress("looking further back", rows, None)
            await self.rest()
            for fire in page:
                if fire.scheduled and fire.job_id in self._heads:
                    # The newest row before the window: if this one does not reach into it, none does.
                    self._judge(self.jobs[fire.job_id], self._heads.pop(fire.job_id), fire)
        for id, absent in self._heads.items():
            self._judge(self.jobs[id], absent, None)

    def _judge(self, job: JobAudit, absent: Iterable[Absent], row: FireRecord | None) -> None:
        for each in absent:
            if rest := job.explain(each, row):
                job.judge(rest)


def _window(
    now: datetime, since: datetime | None, until: datetime | None, retention: timedelta
) -> AuditResult:
    kept = now - retention + min(MARGIN, retention / 10)
    end = now if until is None else min(now, as_utc(until, "until"))
    start = end - DEFAULT_WINDOW if since is None else as_utc(since, "since")
    return AuditResult(now, max(start, kept), end, kept, tzdata_version())


async def _live_targets(store: Store, roster: Roster) -> set[str] | None:
    evidence = await store.evidence([replica.id for replica in roster.replicas])
    gone = roster.overdue | evidence.dead | evidence.gone
    live = [replica for replica in roster.replicas if replica.id not in gone]
    return {target for replica in live for target in replica.targets} if live else None


def _silently(what: str, done: int, total: int | None) -> None:
    return None


async def _at_once() -> None:
    return None
