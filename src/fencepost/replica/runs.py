"""The runs of one replica: start, compare with what the store holds, ended, settled.

All of this happens on the control loop, but for what `Context` says may be called from any thread.
"""

from __future__ import annotations

import concurrent.futures
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fencepost.clock import Clock
from fencepost.model import Json, Reason, State, changed
from fencepost.replica.locks import log_claim
from fencepost.runs.events import Event
from fencepost.runs.failures import Failure
from fencepost.runs.fenced import Scope
from fencepost.runs.outcome import last_words, outcome
from fencepost.runs.run import Run
from fencepost.store.base import Claim, GiveBack, Held, Report, RetryLater, Settle, Update

if TYPE_CHECKING:
    from fencepost.replica.replica import Replica

log = logging.getLogger("fencepost")

REMEMBERED = 1_000
"""Ended runs that are remembered: after a data loss they are settled again, not given back as never started."""


class Runs(Mapping[str, Run]):
    """By the keys of their fires; each from its claim until its outcome is settled. The context of every run."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._by_key: dict[str, Run] = {}
        self._ended: dict[str, Update] = {}
        """How the last runs ended, by their keys."""
        self._last_end = -math.inf
        self._results_dropped: set[str] = set()
        """Jobs whose results could not be kept: said once of each."""

    def __getitem__(self, key: str) -> Run:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def running_keys(self) -> tuple[str, ...]:
        """From any thread."""
        return tuple(self._by_key)

    def room(self) -> int:
        """How many more can be started."""
        replica = self._replica
        free = replica.settings.slots - len(self) - replica.host.detached
        return max(0, min(free, replica.host.room(replica.clock.steady())))

    @property
    def ended_lately(self) -> bool:
        """Within the last TTL. A store that loses data may have forgotten that, and take the run for ours."""
        ttl = self._replica.settings.run_ttl.total_seconds()
        return self._replica.clock.steady() < self._last_end + ttl

    # --- start --------------------------------------------------------------------------------------------

    def start(self, claims: Sequence[Claim], start_before: float) -> None:
        """Start claimed fires."""
        replica = self._replica
        fresh = [claim for claim in claims if not self._is_running(claim)]
        known = [claim for claim in fresh if claim.job.target in replica.registry]
        if len(known) < len(fresh):  # dropped while the claim was on its way
            self.return_unstarted([claim for claim in fresh if claim not in known])
        sent = replica.heartbeat.sent_so_far
        runs = [
            Run(self, claim, replica.registry.get(claim.job.target), start_before, sent) for claim in known
        ]
        for run in runs:
            if (outdated := self._by_key.get(run.key)) is not None:
                outdated.fence()  # its token is gone, and no heartbeat would show it: the new run has the same key
            self._by_key[run.key] = run
            run.begin_timeout()
            log_claim("acquired", run.key, run.token)
            replica.events.emit(
                Event("started", replica.id, run.claim.fire, queued=queued_for(run.claim), run=run)
            )
        replica.host.begin(runs)

    def _is_running(self, claim: Claim) -> bool:
        known = self._by_key.get(claim.fire.key)
        return known is not None and known.token == claim.fire.token

    def return_unstarted(self, claims: Sequence[Claim]) -> None:
        """Give back claims whose bodies never started here."""
        for claim in claims:
            self._return(claim.fire.key, claim.fire.token)

    def _return(self, key: str, token: int) -> None:
        """Give a claim back. If its body has run, then the store has forgotten how it ended: it is settled again."""
        ended = self._ended.get(key)
        update = ended if ended is not None and ended.token == token else GiveBack(key, token)
        self._replica.settler.put(update)

    # --- reconcile ----------------------------------------------------------------------------------------

    def reconcile(self, held: Sequence[Held], number: int, trusted_until: float, concluded: int) -> None:
        """Compare with the claims that the store holds for this replica, as the reply to heartbeat `number` lists
        them. `concluded`: the last claim number whose reply has been dealt with."""
        claims = {claim.key: claim for claim in held}
        for run in list(self._by_key.values()):
            if run.known_since >= number:
                # Claimed after this heartbeat was sent: the store may have answered it before it made the claim.
                continue
            claim = claims.get(run.key)
            if claim is None or claim.token != run.token:
                if not run.is_over:  # its outcome is on the way: the reply to that update decides
                    log_claim("lost", run.key, run.token)
                    run.fence()
            else:
                log_claim("renewed", run.key, run.token)
                run.trust_until(trusted_until)
                if claim.cancel_requested:
                    run.cancel("requested")
        # A claim of a finished attempt that no run here knows: its reply was lost or came too late, and the
        # body never started. Without this it would be renewed for ever by a replica that never heard of it.
        for claim in held:
            if claim.key not in self._by_key and claim.claim_no <= concluded:
                self._return(claim.key, claim.token)

    # --- end and settle -----------------------------------------------------------------------------------

    def ended(self, run: Run, error: BaseException | None) -> None:
        """A body has ended: settle its run."""
        replica = self._replica
        try:
            update = outcome(run, error, replica.chance)
        except Exception as failure:
            # Not the body's fault, but without an outcome its claim would be renewed for ever.
            log.exception("%s: %s ended in a way that cannot be settled", replica.id, run.key)
            update = Settle(run.key, run.token, State.FAILED, Reason.RAISED, repr(failure)[:500])
        if update is None:
            self._remember(Settle(run.key, run.token, State.LOST, Reason.DATA_LOSS))
            self._forget(run)
        else:
            if (words := last_words(run, update)) is not None:
                replica.settler.put(words)
            replica.settler.put(update, lambda written, accepted: self._settled(run, written, accepted))

    def _settled(self, run: Run, update: Update, accepted: bool) -> None:
        replica = self._replica
        self._remember(update)
        log_claim("released" if accepted else "refused", run.key, run.token)
        if not accepted:
            run.fence()
        elif isinstance(update, Settle):
            if update.reason == Reason.NOT_RECORDED:
                run.failure = Failure(update.error or "", update.error or "")
            fire = changed(run.claim.fire, state=update.state, reason=update.reason, error=update.error)
            replica.emit(update.state.value, fire, ending=run.ending(update))
        elif isinstance(update, RetryLater):
            fire = changed(run.claim.fire, error=update.error)
            replica.emit("retrying", fire, ending=run.ending(update))
        else:
            replica.emit("given_back", run.claim.fire)
        self._forget(run)

    def _forget(self, run: Run) -> None:
        was_full = not self.room()
        if self._by_key.get(run.key) is run:
            del self._by_key[run.key]
        self._replica.progress.set()
        if was_full:
            # Otherwise the worker knows when something is due: from its last claim, or from the reply to this settle.
            self._replica.worker.wake()

    def _remember(self, ended: Update) -> None:
        self._last_end = self._replica.clock.steady()
        self._ended[ended.key] = ended
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]

    # --- what a run and its host ask for: see `runs.run.Context` ------------------------------------------------

    @property
    def clock(self) -> Clock:
        return self._replica.clock

    @property
    def heartbeat(self) -> float:
        return self._replica.settings.heartbeat.total_seconds()

    @property
    def scope(self) -> Scope:
        return Scope(self._replica.settings.namespace, self._replica.store.home)

    @property
    def descriptors(self) -> Sequence[int]:
        return self._replica.store.descriptors

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._replica.call_soon(callback)

    def report(self, report: Report) -> None:
        self._replica.settler.put_report(report)

    def save(
        self, report: Report, answer: Callable[[Update, bool], None], refused: Callable[[Exception], None]
    ) -> None:
        self._replica.settler.put(report, answer, refused)

    def kept(self, job_id: str) -> concurrent.futures.Future[Json]:
        return self._replica.submit(self._replica.kept(job_id))

    def drop_result(self, job_id: str, why: str) -> None:
        if job_id not in self._results_dropped:
            self._results_dropped.add(job_id)
            log.warning("%s; it is not kept with its fires", why)

    def stop(self, run: Run) -> None:
        self._replica.host.cancel(run)

    def fenced(self, run: Run) -> None:
        self._replica.emit("fenced", run.claim.fire)

    def outlived(self) -> None:
        self._replica.heartbeat.wake()

    def room_changed(self) -> None:
        self._replica.worker.wake()


def queued_for(claim: Claim) -> float:
    """Seconds that a fire waited for its turn."""
    return (claim.free_at - claim.fire.due_at).total_seconds() if claim.free_at else 0.0
