"""R3: of a job that cannot be read nothing is claimed, planned or changed."""

from __future__ import annotations

from tests.protocol.checker.judge import Judge, Step


class Untouched(Judge):
    @property
    def _broken(self) -> set[str]:
        """As the fault has left the store, whatever that makes of it."""
        return self.books.state.jobs_aside()

    def _change_job(self, step: Step) -> None:
        if step.args[0].kind == "remove" and step.reply is not None:
            self.books.state.begin_anew(step.args[0].job_id)

    def _claim_fires(self, step: Step) -> None:
        for claim in step.reply.claims:
            if claim.fire.job_id in self._broken:
                self.books.violation("R3", f"{claim.fire.key} was claimed although its job cannot be read")

    def _plan_fires(self, step: Step) -> None:
        for plan, written in zip(step.args[0], step.reply, strict=True):
            if written and plan.job_id in self._broken:
                self.books.violation("R3", f"{plan.job_id} was planned although it cannot be read")

    def _put_jobs(self, step: Step) -> None:
        for put in step.reply:
            if put.job_id in self._broken and put.outcome in ("created", "changed"):
                self.books.violation("R3", f"{put.job_id} was {put.outcome} although it cannot be read")
