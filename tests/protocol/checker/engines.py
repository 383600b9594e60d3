"""E: runs that an engine carries out. The books hold what the engine has said, who passed the gate, and heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fencepost.model import FireRecord, State
from fencepost.runs.engines import Ref, Sighting, ref_of
from fencepost.store.base import Alive, Missing, Start
from tests.protocol.checker.books import Attempt, Body, Books
from tests.protocol.checker.judge import Judge, Step

TOLERANCE = 0.997
NAMESPACE = "default"


class Engines(Judge):
    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._over: Counter[tuple[Ref, str]] = Counter()
        """By order and replica: how often the engine has told it something else than that it runs, or will, without
        saying so in between."""
        self._was_over: dict[tuple[Ref, str], float] = {}
        """When it ceased to have said so twice in a row. What was sent before may arrive later."""
        self._sent: set[tuple[Ref, str]] = set()
        """Orders, and who sent them without having asked for them since."""
        self._passed: dict[Attempt, str] = {}
        """Who passed the gate."""
        self._heard: dict[Attempt, float] = {}
        """When the worker was last heard of, by the true time."""

    def submitted(self, ref: Ref, replica: str) -> None:
        """E7: a replica that has sent an order asks the engine before it sends it again."""
        if (ref, replica) in self._sent:
            self.books.violation("E7", f"{replica} sends {ref} again, and has not asked for it")
        self._sent.add((ref, replica))
        self._is_on(ref, replica)

    def answered(self, seen: Mapping[Ref, Sighting], replica: str) -> None:
        for ref, sighting in seen.items():
            self._sent.discard((ref, replica))
            if sighting.kind in ("gone", "ended", "unsure"):
                self._over[ref, replica] += 1
            else:
                self._is_on(ref, replica)

    def _is_on(self, ref: Ref, replica: str) -> None:
        if self._over[ref, replica] >= 2:
            self._was_over[ref, replica] = self.books.now()
        self._over[ref, replica] = 0

    def started(self, body: Body) -> None:
        """E1: a body of an engine starts only behind the gate."""
        attempt = body.key, body.token
        if body.fire.remote is not None and self._passed.get(attempt) != body.process:
            self.books.violation("E1", f"{body.key} starts on {body.process}, which has not passed the gate")

    def _update_claims(self, step: Step) -> None:
        for update, accepted in zip(step.args[1], step.reply.accepted, strict=True):
            attempt = update.key, update.token
            if not accepted:
                continue
            if isinstance(update, Start):
                self._gate(attempt, update.worker)
            elif isinstance(update, Alive):
                self._heard[attempt] = self.books.now()
            elif isinstance(update, Missing):
                self._swept(attempt, step)

    def _gate(self, attempt: Attempt, worker: str) -> None:
        """E2: the gate opens once per token. A worker may ask again."""
        before = self._passed.setdefault(attempt, worker)
        if before != worker and not self.books.may_be_given_again(attempt):
            self.books.violation("E2", f"{attempt} is open to {worker}, and was to {before}")
        self._passed[attempt] = worker
        self._heard[attempt] = self.books.now()

    def _swept(self, attempt: Attempt, step: Step) -> None:
        """E3: only after the engine has called it over twice, and its worker was silent: for one and a half heartbeats
        if the store's clock says that its TTL is over, which only a step of the clock may say so soon."""
        key, token = attempt
        asked = ref_of(NAMESPACE, key, token), step.replica
        if self._over[asked] < 2 and step.sent > self._was_over.get(asked, 0.0):
            told = f"{step.replica} so {self._over[asked]} times"
            self.books.violation("E3", f"{key} is ended, but its engine has told {told}")
        heard = self._heard.get(attempt)
        if heard is None:
            return  # no worker has passed the gate: none may start from now on
        silence = self.books.now() - heard
        if silence < 1.5 * self.books.heartbeat * TOLERANCE:
            self.books.violation("E3", f"{key} is ended {silence:.1f} s after a heartbeat")
        if silence < self.books.ttl:  # its worker may still trust the answer of the gate
            self.books.excused.add(attempt)

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        """E4: what is given up as never started has not; and no replica's end touches such a run."""
        if before is None or after is None or before.remote is None or before.state is not State.RUNNING:
            return
        attempt = before.key, before.token
        outcome = after.attempts[-1].outcome if after.attempts else ""
        gone = (
            after.state is not State.RUNNING
            and outcome == "gone"
            and after.attempts[-1].token == before.token
        )
        if gone and attempt in self._passed and not self.books.may_be_given_again(attempt):
            self.books.violation(
                "E4", f"{before.key} is called never started, but {self._passed[attempt]} did"
            )

    def _sweep(self, step: Step) -> None:
        for fire in step.reply.settled if step.reply is not None else ():
            if fire.remote is not None and (fire.replica or "").startswith("engine:"):
                self.books.violation("E5", f"{fire.key} belongs to its engine, and is ended with a replica")

    def restored(self, snapshot: dict[str, Any]) -> None:
        self._sent.clear()  # what had ended, and was done with, may be running again

    def finish(self, until: datetime) -> None:
        """Every remote run ends: `Ledger` finds those that do not (S8). Here: none is left with its engine alone."""
        for fire in self.books.state.fires.rows.values():
            if fire.state is State.LOST and not fire.reason:
                self.books.violation("E6", f"{fire.key} is lost without a reason")
