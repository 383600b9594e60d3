"""Mixed revisions: which definition may replace which."""

from __future__ import annotations

from collections import defaultdict
from typing import ClassVar

from fencepost.store.base import PutJob
from fencepost.testing.checker.books import Books
from fencepost.testing.checker.judge import Judge, Step


class Definitions(Judge):
    lost_with_the_store: ClassVar = ("_revisions", "_fingerprints", "_declared", "_removed")

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._revisions: dict[str, int] = {}
        self._fingerprints: dict[str, tuple[str, ...]] = defaultdict(tuple)
        """By job: its definitions so far, the one in force last."""
        self._declared: dict[str, frozenset[str]] = defaultdict(frozenset)
        """By job: the replicas that declare what is in force."""
        self._removed: frozenset[str] = frozenset()

    def _put_jobs(self, step: Step) -> None:
        for put, outcome in zip(step.args[0], step.reply, strict=True):
            if not outcome.refused and outcome.outcome != "exists":
                self._written(put)

    def _change_job(self, step: Step) -> None:
        if step.args[0].kind == "remove" and step.reply is not None:
            self._removed |= {step.args[0].job_id}
            self._declared[step.args[0].job_id] = frozenset()

    def _written(self, put: PutJob) -> None:
        id, fingerprint = put.job.id, put.job.fingerprint
        before = self._fingerprints[id]
        if before and before[-1] != fingerprint and id not in self._removed:
            self._judge(put, before)
        if not before or before[-1] != fingerprint:
            self._fingerprints[id] = (*before, fingerprint)
            self._declared[id] = frozenset()
        self._declared[id] |= {put.by}
        self._removed -= {id}
        if put.revision is not None:
            self._revisions[id] = max(put.revision, self._revisions.get(id, put.revision))

    def _judge(self, put: PutJob, before: tuple[str, ...]) -> None:
        known = self._revisions.get(put.job.id)
        if put.revision is not None and known is not None:
            if put.revision < known:
                self.books.violation("P-revision", f"{put.job.id}: revision {put.revision} replaces {known}")
            return
        steady = self.books.moment().steady
        live = {each.id for each in self.books.state.replicas.values() if each.expires > steady}
        others = (self._declared[put.job.id] & live) - {put.by}
        if put.job.fingerprint in before[-10:] and others:
            self.books.violation(
                "P-revision", f"{put.job.id}: {put.by} flips back what {sorted(others)} declare"
            )
