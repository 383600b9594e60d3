"""Which definition may replace which: mixed revisions, two origins, code and what was made by hand."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import ClassVar

from fencepost.model.triggers import Trigger
from fencepost.store.base import PutJob
from tests.protocol.checker.books import Books
from tests.protocol.checker.judge import Judge, Step


class Definitions(Judge):
    lost_with_the_store: ClassVar = (
        "_revisions",
        "_fingerprints",
        "_declared",
        "_removed",
        "_origins",
        "_by_hand",
        "_trigger",
        "_targets",
        "_versions",
    )

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._revisions: dict[str, int] = {}
        self._fingerprints: dict[str, tuple[str, ...]] = defaultdict(tuple)
        """By job: its definitions so far, the one in force last."""
        self._declared: dict[str, frozenset[str]] = defaultdict(frozenset)
        """By job: the replicas that declare what is in force."""
        self._removed: frozenset[str] = frozenset()
        self._origins: dict[str, str] = {}
        """By job: whose code the definition in force is, or was before a person made another."""
        self._by_hand: frozenset[str] = frozenset()
        self._trigger: dict[str, Trigger | None] = {}
        self._versions: dict[tuple[str, int], Trigger | None] = {}
        """By job and version: the trigger that a reader has seen."""
        self._homes: dict[tuple[str, str], str] = {}
        """By job and replica: whose code that declares it, refused or not."""
        self._targets: dict[str, str] = {}
        """By job: the task of the definition in force."""
        self._offered: dict[tuple[str, str], int | None] = {}
        """By job and replica: the revision with which that declares it, refused or not."""

    def _put_jobs(self, step: Step) -> None:
        for put, outcome in zip(step.args[0], step.reply, strict=True):
            self._offered[put.job.id, put.by] = put.revision
            if put.by and put.origin is not None:
                self._homes[put.job.id, put.by] = put.origin.key
            if put.chosen and outcome.outcome == "flip back":
                self.books.violation("P-chosen", f"{put.job.id}: what {put.by} asks for now is refused")
            if not outcome.refused:
                self._written(put)

    def _change_job(self, step: Step) -> None:
        change = step.args[0]
        if change.kind != "remove" or step.reply is None:
            return
        id = change.job_id
        knowing = self._at_work(self.books.job(id).job.lane)
        if change.if_undeclared and knowing:
            self.books.violation(
                "P-declared", f"{id} is removed as abandoned, but {sorted(knowing)} declare it"
            )
        seen = self._versions.get((id, change.version), self._trigger.get(id))
        if change.version is not None and seen != self._trigger.get(id):
            now = self._trigger.get(id)
            told = [trigger.describe() if trigger else "no trigger" for trigger in (seen, now)]
            self.books.violation("P-version", f"{id} is removed for {told[0]}, and has {told[1]} by now")
        self._removed |= {id}
        self._by_hand -= {id}
        self._declared[id] = frozenset()

    def _written(self, put: PutJob) -> None:
        id, fingerprint = put.job.id, put.job.fingerprint
        before = self._fingerprints[id]
        changes = not before or before[-1] != fingerprint
        if before and id not in self._removed:
            if changes:
                self._judge(put, before)
            self._judge_origin(put)
        if changes:
            self._fingerprints[id] = (*before, fingerprint)
            self._declared[id] = frozenset()
        self._note_source(put, changes or id in self._removed)
        if (
            put.by in self.books.state.replicas.rows
        ):  # not one that was taken for dead, and has not joined again yet
            self._declared[id] |= {put.by}
        if put.chosen:  # for all of the application, whether they have read it or not
            replicas = self.books.state.replicas.rows.values()
            self._declared[id] |= {each.id for each in replicas if put.job.lane in each.targets}
        self._removed -= {id}
        self._targets[id] = put.job.lane
        self._trigger[id] = self._versions[id, self.books.job(id).version] = put.job.trigger
        if put.revision is not None:
            self._revisions[id] = max(put.revision, self._revisions.get(id, put.revision))

    def _note_source(self, put: PutJob, anew: bool) -> None:
        id = put.job.id
        if put.source == "api":
            self._by_hand |= {id} if anew else frozenset()
            if id in self._removed:
                self._origins.pop(id, None)
        else:
            self._by_hand -= {id}
            if put.origin is not None:
                self._origins[id] = put.origin.key
            elif anew:
                self._origins.pop(id, None)

    def _judge(self, put: PutJob, before: tuple[str, ...]) -> None:
        if put.expected not in (None, before[-1]):
            self.books.violation("P-expected", f"{put.job.id}: {put.by} replaces what it has not seen")
        known = self._revisions.get(put.job.id)
        if put.source == "code" and put.job.id in self._by_hand:
            self.books.violation("P-hand", f"{put.job.id}: {put.by} undoes what was made by hand")
        if put.revision is not None and known is not None:
            if put.revision < known:
                self.books.violation("P-revision", f"{put.job.id}: revision {put.revision} replaces {known}")
            return
        others = (self._declared[put.job.id] & self._live()) - {put.by}
        asked_for = put.source == "api" or put.chosen
        if put.job.fingerprint in before[-10:] and others and not asked_for:
            self.books.violation(
                "P-revision", f"{put.job.id}: {put.by} flips back what {sorted(others)} declare"
            )

    def _judge_origin(self, put: PutJob) -> None:
        """Whoever has a job from where it was defined keeps it, as long as one of them is at work."""
        id, home = put.job.id, self._origins.get(put.job.id)
        if put.source == "api" or put.origin is None or home in (None, put.origin.key) or id in self._by_hand:
            return
        target = self._targets[id]
        keepers = {each for each in self._at_work(target) - {put.by} if self._homes.get((id, each)) == home}
        if keepers:
            self.books.violation(
                "P-origin", f"{id}: {put.by} from {put.origin.key} takes it from {sorted(keepers)}"
            )

    def finish(self, until: datetime) -> None:
        """Nobody is left of where a job was defined: then it is of where all that know it have it from, unless all of
        them are of an older revision."""
        for id, record in self.books.state.jobs.rows.items():
            at_work = self._at_work(record.job.lane)
            homes = {self._homes.get((id, each)) for each in at_work}
            if record.removed_at or record.source == "api" or record.origin is None or len(homes) != 1:
                continue
            if all(self._is_older(id, each) for each in at_work):
                continue
            [home] = homes
            if home is not None and record.origin.key != home:
                self.books.violation(
                    "P-origin", f"{id} is of {record.origin.key}, but all have it from {home}"
                )

    def _is_older(self, id: str, replica: str) -> bool:
        offered, holds = self._offered.get((id, replica)), self._revisions.get(id)
        return offered is not None and holds is not None and offered < holds

    def _live(self) -> set[str]:
        steady = self.books.moment().steady
        return {each.id for each in self.books.state.replicas.rows.values() if each.expires > steady}

    def _at_work(self, target: str) -> set[str]:
        """Live replicas that know this task and are not about to leave."""
        replicas = self.books.state.replicas.rows
        return {
            each
            for each in self._live()
            if target in self.books.targets[each] and target in replicas[each].targets
            if not replicas[each].draining
        }
