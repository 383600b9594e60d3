"""D: what holds although the store has lost data (`docs/decisions/0016-data-loss.md`)."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any, ClassVar

from fencepost.model import FireRecord, job_of
from tests.protocol.checker.books import Attempt, Books
from tests.protocol.checker.judge import Judge, Step
from tests.protocol.checker.tokens import TRUSTED
from tests.protocol.network import Request

TOLERANCE = 0.997


class Loss(Judge):
    lost_with_the_store: ClassVar = (
        "_last_step",
        "_numbers",
        "_eras",
        # A loss that was noticed can be forgotten by the next one, and must be noticed again.
        "_witnesses",
        "_noticed",
        "_noticed_at",
        "_concluded",
    )

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._last_step = 0
        self._numbers: dict[tuple[str, str], int] = defaultdict(int)
        self._counted: set[int] = set()
        """Steps the store takes for a replica, and counts."""
        self._told: dict[str, int] = {}
        """By replica: the last of them it was told of."""
        self._learned: dict[tuple[str, int, str], float] = {}
        """When each replica was first told of each incarnation."""
        self._eras: set[tuple[int, str]] = set()
        """The incarnations there have been, and in which start of the server each was."""
        self._in_doubt = False
        """The server has restarted, and nobody has claimed since."""
        self._restarted_at = 0.0
        self._witnesses: set[str] = set()
        """Replicas that were told of something that was lost."""
        self._noticed = 0
        """The incarnation begun when a loss was last noticed."""
        self._noticed_at = 0.0
        self._concluded: set[Attempt] = set()
        """Forgotten claims of losses that are over."""
        self._declared: dict[str, tuple[float, float]] = {}
        """By replica: when it first and last declared its jobs."""

    def step(self, step: Step) -> None:
        self._last_step = step.number
        super().step(step)
        era = self.books.state.leader.era
        self._eras.add((era.incarnation, era.server))
        if era.standing == "lost" and era.incarnation != self._noticed:
            self._noticed, self._noticed_at = era.incarnation, self.books.now()
            self.books.forgiven |= {each for each in self._new() if self._may_be_repeated(each[0])}
            self.books.unknowable |= {
                number for number, server in self.books.forgotten_eras if self._is_unknowable(number, server)
            }
            self._conclude()
            if not self._in_doubt and not self._has_seen_what_is_forgotten(step):
                self.books.violation("D2", f"{step.replica} reports a loss, but nothing was lost")

    def _is_unknowable(self, number: int, server: str) -> bool:
        knew = {replica for replica, *era in self._learned if era == [number, server]}
        return knew <= self.books.dead

    def _has_seen_what_is_forgotten(self, step: Step) -> bool:
        """An incarnation of which the store has no trace. Its tokens may be given out a second time in the present one
        if that has the same number, so it is never too late to say so."""
        seen = step.args[0].seen
        return (seen.incarnation, seen.server) in self.books.forgotten_eras

    # --- what was told to whom ------------------------------------------------------------------------------

    def _heartbeat(self, step: Step) -> None:
        if step.reply.known:
            self._count(step, step.args[0].number)
        proof = step.replica in self._witnesses and step.sent >= self._restarted_at
        if proof and self.books.state.leader.era.standing == "restarted":
            self.books.violation("D1", f"{step.replica} was told of what is lost, and is not believed")

    def _update_claims(self, step: Step) -> None:
        settled = self.books.state.leader.era.standing == "settled"
        if settled and any(step.reply.accepted) and step.replica in self.books.state.replicas.rows:
            self._counted.add(step.number)

    def _count(self, step: Step, number: int) -> None:
        if number > self._numbers[step.replica, step.name]:
            self._numbers[step.replica, step.name] = number
            self._counted.add(step.number)

    def delivered(self, request: Request) -> None:
        replica = request.process.name
        if request.step in self._counted:
            self._told[replica] = max(request.step, self._told.get(replica, 0))
        if request.name == "heartbeat":
            era = request.reply.leader.era
            self._learned.setdefault((replica, era.incarnation, era.server), self.books.now())

    # --- a restart, and the end of doubt ----------------------------------------------------------------------

    def restored(self, snapshot: dict[str, Any]) -> None:
        before = self._eras
        super().restored(snapshot)
        self.books.forgotten_eras |= before - self._eras
        told = {replica for replica, step in self._told.items() if step > self._last_step}
        self._witnesses |= told - self.books.dead

    def _restarted(self, step: Step) -> None:
        self._in_doubt, self._restarted_at = True, self.books.now()

    def _claim_fires(self, step: Step) -> None:
        request, era = step.args[0], self.books.state.leader.era
        if (request.incarnation, request.server) != (era.incarnation, era.server):
            return
        if step.replica in self.books.state.replicas.rows:
            self._count(step, request.number)
        if self._in_doubt and era.standing == "settled":
            learned = self._learned.get((step.replica, era.incarnation, era.server))
            if learned is None or step.sent - learned < TRUSTED * self.books.ttl * TOLERANCE:
                self.books.violation("D3", f"{step.replica} claims in incarnation {era.incarnation} too soon")
            self.books.forgiven |= self._new() | self._ahead_of_the_clock()
            self._conclude()
            self._in_doubt = False

    def _new(self) -> set[Attempt]:
        return self.books.forgotten - self._concluded

    def _ahead_of_the_clock(self) -> set[Attempt]:
        """Runs of fires later than any reading of the store's clock that those who were heard of had been told. Their
        time seems to come only now."""
        lost_through = self.books.state.leader.era.lost_through
        if not self.books.stepped_back or lost_through is None:
            return set()
        bodies = [body for attempt in self.books.forgotten if (body := self.books.bodies.get(attempt))]
        return {(body.key, body.token) for body in bodies if self._seems_asked_since(body.fire, lost_through)}

    def _seems_asked_since(self, fire: FireRecord, lost_through: datetime) -> bool:
        """It falls due after what was lost, or a person seems to have asked for its backfill after the loss."""
        record = self.books.state.jobs.rows.get(fire.job_id) if fire.backfill else None
        backfill = record.backfill(fire.backfill) if record and fire.backfill else None
        asked_at = backfill.confirmed_at if backfill else None
        return fire.due_at > lost_through or (asked_at is not None and asked_at > lost_through)

    def _may_be_repeated(self, key: str) -> bool:
        state, job_id = self.books.state, job_of(key)
        is_known = job_id in state.jobs.rows or ("job", job_id) in state.broken.rows
        return not is_known or self.books.job(job_id).job.after_crash == "rerun"

    def _conclude(self) -> None:
        """The loss is noticed; or somebody claims, and what nobody has told by now, nobody can."""
        self._witnesses.clear()
        self._concluded = set(self.books.forgotten)

    # --- definitions ------------------------------------------------------------------------------------------

    def _put_jobs(self, step: Step) -> None:
        first, _ = self._declared.get(step.replica, (self.books.now(), 0.0))
        self._declared[step.replica] = first, self.books.now()

    def finish(self, until: datetime) -> None:
        for replica, (first, last) in self._declared.items():
            alive = replica and replica not in self.books.dead
            if alive and max(first, last) < self._noticed_at:
                self.books.violation("D4", f"{replica} has not declared its jobs again after the loss")
