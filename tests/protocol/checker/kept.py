"""R4: what a run keeps for later ones is written with its outcome, or neither is."""

from __future__ import annotations

from typing import ClassVar

from fencepost.model import Json, job_of
from fencepost.store.base import Settle
from tests.protocol.checker.books import Attempt, Books
from tests.protocol.checker.judge import Judge, Step
from tests.protocol.network import Request


class Kept(Judge):
    lost_with_the_store: ClassVar[tuple[str, ...]] = ("_settled",)

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._settled: set[Attempt] = set()
        """What is settled once more, because the reply was lost, writes nothing."""

    def _update_claims(self, step: Step) -> None:
        kept: dict[str, Json] = {}
        for update, accepted in zip(step.args[1], step.reply.accepted, strict=True):
            attempt = update.key, update.token
            if not accepted or not isinstance(update, Settle) or attempt in self._settled:
                continue
            self._settled.add(attempt)
            if update.keep is not None:
                kept[job_of(update.key)] = update.keep
        for job_id, value in kept.items():
            found = self.books.job(job_id).kept
            if found != value:
                self.books.violation("R4", f"{job_id} keeps {found}, and its run has left {value}")

    def refused(self, request: Request) -> None:
        """Rightly so only if a run in it keeps something, and the row of its job is damaged."""
        updates = request.args[1] if request.name == "update_claims" else ()
        broken = {
            (update.key, update.token)
            for update in updates
            if isinstance(update, Settle)
            and update.keep is not None
            and ("job", job_of(update.key)) in self.books.state.damaged
        }
        if not broken:
            self.books.violation("R4", f"{request.name} was refused, and nothing in it cannot be read")
        self.books.unkept |= broken
