"""The audit sees only what users see: it must have nothing to say against a history that kept every promise."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any

from fencepost.clock import Moment
from fencepost.insight.audit import AuditResult, Kind, audit
from fencepost.store.memory import MemoryStore
from fencepost.testing.world import EPOCH
from tests.protocol.checker.judge import Judge

BEFORE_ALL = EPOCH - timedelta(days=1)


class Audit(Judge):
    def finish(self, until: datetime) -> None:
        store = MemoryStore(_Standing(self.books.moment()))
        store.state = self.books.state
        for kind, findings in _done(audit(store, since=BEFORE_ALL)).findings.items():
            if kind is Kind.OVERDUE:
                continue  # nobody works on it: `ledger` knows who could
            if kind is Kind.DOUBLED and self.books.stepped_back:
                continue  # attempts between which the clock was set back seem to overlap
            if kind is Kind.UNACCOUNTED and self.books.stepped_back:
                # Whether a parent ended before its child was declared, the clock tells. `chains` saw which was first.
                findings = [each for each in findings if "let it go" not in each.why]
            for finding in findings[:1]:
                self.books.violation("A", f"{kind}: {finding.key}: {finding.why}")


class _Standing:
    """A clock that stands still."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment

    def wall(self) -> datetime:
        return self._moment.wall

    def steady(self) -> float:
        return self._moment.steady


def _done(auditing: Coroutine[Any, Any, AuditResult]) -> AuditResult:
    """The store is in memory: nothing ever waits."""
    try:
        auditing.send(None)
    except StopIteration as done:
        report: AuditResult = done.value
        return report
    raise AssertionError("a memory store never waits")
