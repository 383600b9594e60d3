"""Judges a simulated history by the promises.

It sees every step of the store, every change of a row, every start and end of a body, and every effect on a sink
outside the store. It keeps books of its own, and has a calendar of its own. Each judge looks after a few promises.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from fencepost.model import FireRecord
from tests.protocol.checker.audit import Audit
from tests.protocol.checker.backfills import Backfills
from tests.protocol.checker.books import Body, Books
from tests.protocol.checker.chains import Chains
from tests.protocol.checker.definitions import Definitions
from tests.protocol.checker.engines import Engines
from tests.protocol.checker.judge import Judge, Step
from tests.protocol.checker.kept import Kept
from tests.protocol.checker.ledger import Ledger
from tests.protocol.checker.limits import Limits
from tests.protocol.checker.listed import Listed
from tests.protocol.checker.loss import Loss
from tests.protocol.checker.notices import Notices
from tests.protocol.checker.outcomes import Outcomes
from tests.protocol.checker.policies import Policies
from tests.protocol.checker.presence import Presence
from tests.protocol.checker.priorities import Priorities
from tests.protocol.checker.recording import Recording
from tests.protocol.checker.replaced import Replaced
from tests.protocol.checker.runs import Runs
from tests.protocol.checker.sink import Sink
from tests.protocol.checker.tasks import Tasks
from tests.protocol.checker.tokens import Tokens
from tests.protocol.checker.unreadable import Untouched
from tests.protocol.network import Request

__all__ = ["Body", "Books", "Checker", "Step"]


class Checker:
    def __init__(self, books: Books) -> None:
        self.books = books
        self.sink = Sink(books)
        self.runs = Runs(books)
        self.engines = Engines(books)
        self.notices = Notices(books)
        # In this order: presence is judged by the tokens as they were before the step.
        self._judges: list[Judge] = [
            Loss(books),
            Presence(books),
            Tokens(books),
            Backfills(books),
            Policies(books),
            Replaced(books),
            Limits(books),
            Priorities(books),
            Chains(books),
            self.runs,
            Definitions(books),
            Listed(books),
            Tasks(books),
            Ledger(books),
            Outcomes(books),
            Recording(books),
            Kept(books),
            self.notices,
            Untouched(books),
            self.engines,
            self.sink,
            Audit(books),
        ]
        # Thousands of times a seed: only those that have something to say are asked.
        self._of_rows = [judge for judge in self._judges if _overrides(judge, "row")]
        self._of_deliveries = [judge for judge in self._judges if _overrides(judge, "delivered")]
        self._steps: dict[str, list[Callable[[Step], None]]] = {}

    @property
    def violations(self) -> list[str]:
        return self.books.violations

    # --- as it happens ------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        self.books.latest = self.books.latest_now()
        for judged in self._of_step(step.name):
            judged(step)

    def _of_step(self, name: str) -> list[Callable[[Step], None]]:
        """What each judge does after such a step."""
        if name not in self._steps:
            own = [each.step if _overrides(each, "step") else each.method_of(name) for each in self._judges]
            self._steps[name] = [judged for judged in own if judged is not None]
        return self._steps[name]

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        for judge in self._of_rows:
            judge.row(before, after)

    def delivered(self, request: Request) -> None:
        for judge in self._of_deliveries:
            judge.delivered(request)

    def refused(self, request: Request) -> None:
        for judge in self._judges:
            judge.refused(request)

    def started(self, body: Body) -> None:
        for judge in self._judges:
            judge.started(body)
        self.books.bodies[body.key, body.token] = body

    def ended(self, body: Body) -> None:
        if body.ended is None:
            body.ended = self.books.now()
            for judge in self._judges:
                judge.ended(body)

    def killed(self, process: str) -> None:
        self.books.dead.add(process)
        for body in self.books.bodies.values():
            if body.process == process:
                self.ended(body)

    def finish(self, until: datetime) -> None:
        for judge in self._judges:
            judge.finish(until)

    # --- when the store loses data --------------------------------------------------------------------------

    def snapshot(self) -> list[dict[str, Any]]:
        """What the judges know that must be forgotten with what the store has lost."""
        return [judge.snapshot() for judge in self._judges]

    def restored(self, snapshot: list[dict[str, Any]]) -> None:
        for judge, kept in zip(self._judges, snapshot, strict=True):
            judge.restored(kept)


def _overrides(judge: Judge, name: str) -> bool:
    return getattr(type(judge), name) is not getattr(Judge, name)
