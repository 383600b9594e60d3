"""R1: one value that cannot be written stops one run. That one is on record as failed for this reason, and no other is.

What would be stuck behind such an update is found by the judges of S8 and L2.
"""

from __future__ import annotations

from fencepost.model import FireRecord, Reason, State
from fencepost.store.base import GiveBack, Settle
from tests.protocol.checker.judge import Judge, Step


class Recording(Judge):
    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        if after is None or after.reason != Reason.NOT_RECORDED:
            return
        if (after.key, after.token) not in self.books.unwritable.keys() | self.books.unkept:
            self.books.violation("R1", f"{after.key} was settled as unwritable, and was not")
        if after.state is not State.FAILED or not after.error:
            self.books.violation(
                "R1", f"{after.key}: {after.reason}, but it is {after.state} ({after.error})"
            )

    def _update_claims(self, step: Step) -> None:
        """What cannot be written must not have been, in whatever batch it came."""
        for update, accepted in zip(step.args[1], step.reply.accepted, strict=True):
            bad = (update.key, update.token) in self.books.unwritable
            told = isinstance(update, Settle) and update.reason == Reason.NOT_RECORDED
            if accepted and bad and not told and not isinstance(update, GiveBack):
                self.books.violation("R1", f"{update.key}: what cannot be written was ({update})")
