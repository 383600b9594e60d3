"""S1, S4, S5, S7: who may act on a fire, and for how long."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

from fencepost.model import FireRecord, State
from fencepost.store.base import Adopt, Alive, Claim, GiveBack, Missing, Report, Settle, Start, Update
from tests.protocol.checker.books import Attempt, Body, Books
from tests.protocol.checker.judge import Judge, Step, declared_dead
from tests.protocol.network import Request

TRUSTED = 0.7
"""The share of a TTL after sending during which a claim is trusted."""
CLOCKS = 1.003
"""Steady clocks go wrong by a thousandth; two of them may be compared."""


def ending(job_id: str, key: str) -> str:
    """What the keys of all fires of a chain have in common."""
    return key[len(job_id) :]


class Tokens(Judge):
    lost_with_the_store: ClassVar = ("_on_record",)

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._given: dict[str, set[Attempt]] = defaultdict(set)
        """By job: every claim. Not lost with the store: later tokens are higher all the same."""
        self._on_record: set[Attempt] = set()
        """Those of them that the store has made in the history it remembers."""
        self._settled: set[Attempt] = set()
        self._ends_told_by_engines: dict[Attempt, object] = {}
        """A worker that comes later and says the same is answered like one whose reply was lost."""
        self._released: set[Attempt] = set()
        """Attempts after which the fire may rightly be claimed again."""
        self._repeated: set[Attempt] = set()
        """Runs the store had lost, and which were repeated as their job allowed then. Whether there may be a further
        run is a matter of the one that repeated them, also where the job allows no more by now."""
        self._starts: dict[str, list[int]] = defaultdict(list)
        self._granted: dict[Attempt, float] = {}
        """When the latest request was sent whose answer names this claim."""
        self._handed_over: list[FireRecord] = []
        """Runs of engines that the step being taken has written. No reply names those that it claimed."""
        self._over: list[Attempt] = []
        """Claims that the step being taken has ended."""

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if after is not None and after.remote is not None and after.state is State.RUNNING:
            self._handed_over.append(after)
        if before is None or before.state is not State.RUNNING:
            return
        attempt = before.key, before.token
        if after is None or after.state is not State.RUNNING or after.token != before.token:
            self._over.append(attempt)
        if after is not None and after.state is State.WAITING:
            self._released.add(attempt)

    def step(self, step: Step) -> None:
        super().step(step)
        for fire in self._handed_over:
            if self.books.current.get(fire.key) != fire.token:
                self._claimed(Claim(fire, self.books.job(fire.job_id).job))
        self._handed_over.clear()
        if step.name == "heartbeat":
            # A loss was noticed. Its claims are gone, but until its replicas hear of it they are trusted.
            self.books.excused |= set(self._over)
        for key, token in self._over:
            if self.books.current.get(key) == token:
                del self.books.current[key]
        self._over.clear()

    def _claim_fires(self, step: Step) -> None:
        for claim in step.reply.claims:
            if self.books.current.get(claim.fire.key) != claim.fire.token:  # else asked for again
                self._claimed(claim)

    def _claimed(self, claim: Claim) -> None:
        fire = claim.fire
        if fire.key in self.books.current:
            held = self.books.current[fire.key]
            self.books.violation("S1", f"{fire.key} claimed with token {fire.token} while {held} is current")
        self._outranks(fire)
        self._may_run_again(claim)
        self.books.current[fire.key] = fire.token
        self._given[fire.job_id].add((fire.key, fire.token))
        self._on_record.add((fire.key, fire.token))

    def _outranks(self, fire: FireRecord) -> None:
        """Its token is higher than all before it."""
        higher = [attempt for attempt in self._given[fire.job_id] if attempt[1] >= fire.token]
        counted = [token for key, token in higher if not self.books.may_be_given_again((key, token))]
        if counted:
            self.books.violation("S4", f"{fire.key}: token {fire.token} after {max(counted)}")

    def _may_run_again(self, claim: Claim) -> None:
        """A further attempt exists only after the one before was settled or given back by its own token, or was
        cut off and may be repeated."""
        for token in self._starts[claim.fire.key]:
            attempt = claim.fire.key, token
            if attempt in self._repeated:
                continue
            lost = attempt in self.books.forgotten
            if attempt in self._released and not lost:
                continue
            if lost and (claim.job.after_crash == "rerun" or attempt in self.books.forgiven):
                continue
            asked = claim.fire.backfill or ending(claim.fire.job_id, claim.fire.key)
            if lost and not claim.fire.scheduled and self.books.is_asked_again(asked, attempt):
                continue
            self.books.violation(
                "S1", f"{claim.fire.key} is claimed again, but its run with token {token} may not be"
            )

    def _add_fire(self, step: Step) -> None:
        if step.reply.outcome == "added":
            self.books.ask_again(ending(step.args[0].job_id, step.args[0].key))

    def _update_claims(self, step: Step) -> None:
        for update, accepted in zip(step.args[1], step.reply.accepted, strict=True):
            attempt = update.key, update.token
            if not accepted or attempt in self._settled:
                continue
            is_current = self.books.current.get(update.key) == update.token
            if not is_current and self._ends_told_by_engines.get(attempt) != _end_told(update):
                self.books.violation(
                    "S5", f"{update.key}: stale token {update.token} was accepted ({update})"
                )
            if isinstance(update, Missing) and update.then is not None:
                self._ends_told_by_engines[attempt] = _end_told(update.then)
            if isinstance(update, Report | Start | Alive | Adopt | Missing):
                continue  # of the last ones `Engines` judges
            body = self.books.bodies.get(attempt)
            if body is not None and body.process != step.replica and self.books.may_be_given_again(attempt):
                body = None  # of an earlier claim with this token, in an incarnation that is forgotten
            if isinstance(update, GiveBack) and not update.started and body is not None:
                self.books.violation("S1", f"{update.key}: given back as not started, but it did")
            if body is not None and body.ended is None:
                self.books.violation("S6", f"{update.key}: settled while its body runs")
            self._settled.add(attempt)

    def _cancel_fire(self, step: Step) -> None:
        """Who calls a replica dead ends the run they have seen, and no later one of the same fire. If the replica
        lives, it does not know yet."""
        seen = declared_dead(step)
        if seen is None:
            return
        if seen in self.books.current.items() and seen not in self._over:
            self.books.violation("P-dead", f"{seen[0]}: the run with token {seen[1]} goes on, declared dead")
        for key, token in set(self._over) - {seen}:
            self.books.violation("P-dead", f"{key}: {token} was ended, but {seen[1]} was declared dead")
        self.books.excused |= set(self._over)

    def _leave(self, step: Step) -> None:
        for attempt in self._over:
            given_back = self.books.state.fires.rows[attempt[0]].attempts[-1].outcome == "given back"
            if given_back and attempt in self.books.bodies:
                self.books.violation(
                    "S1", f"{attempt[0]}: its replica left, and gave back what it had started"
                )
            if given_back:  # should the replica have done so itself, that may arrive only now
                self._settled.add(attempt)

    def delivered(self, request: Request) -> None:
        named: list[Attempt] = []
        if request.name == "claim_fires":
            named = [(claim.fire.key, claim.fire.token) for claim in request.reply.claims]
        elif request.name == "heartbeat":
            named = [(held.key, held.token) for held in request.reply.held]
        elif request.name == "update_claims":
            pairs = zip(request.args[1], request.reply.accepted, strict=True)
            named = [(each.key, each.token) for each, yes in pairs if yes and isinstance(each, Start | Alive)]
        for attempt in named:
            self._granted[attempt] = max(request.sent, self._granted.get(attempt, 0.0))

    def started(self, body: Body) -> None:
        attempt = body.key, body.token
        if attempt in self.books.bodies and not self.books.may_be_given_again(attempt):
            self.books.violation("S1", f"{body.key} started twice with token {body.token}")
        if body.job.after_crash == "rerun":
            before = {(body.key, token) for token in self._starts[body.key] if token < body.token}
            self._repeated |= before & self.books.forgotten
        self._starts[body.key].append(body.token)
        granted = self._granted.get(attempt)
        if granted is None or body.started > granted + TRUSTED * self.books.ttl * CLOCKS:
            self.books.violation("S7", f"{body.key} started at {body.started:.3f}, trusted since {granted}")
        stale = self.books.current.get(body.key) != body.token
        if stale and attempt not in self.books.excused | self.books.forgotten:
            self.books.violation(
                "S7", f"{body.key} started on {body.process} with token {body.token}: not current"
            )

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "asked_again": dict(self.books.asked_again)}

    def restored(self, snapshot: dict[str, Any]) -> None:
        """Claims the store has lost stay in the books as forgotten, also those that had ended before; those it has
        again are current."""
        before = self._on_record
        kept = dict(snapshot)
        self.books.asked_again = dict(kept.pop("asked_again"))
        super().restored(kept)
        self.books.forgotten |= before - self._on_record
        rows = self.books.state.fires.rows
        for key, token in (*self.books.bodies, *self.books.current.items()):
            row = rows.get(key)
            if row is None or row.token < token:
                self.books.forgotten.add((key, token))
        self.books.current = {row.key: row.token for row in rows.values() if row.state is State.RUNNING}
        self._settled -= set(self.books.current.items())
        self._released -= set(self.books.current.items())
        self.books.losses += 1
        for attempt in self.books.forgotten:
            self.books.forgotten_in.setdefault(attempt, self.books.losses)


def _end_told(update: Update) -> object:
    return type(update), update.state if isinstance(update, Settle) else None
