"""Which way an operation takes: the fast path first where there is one, and the general one for what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fencepost.model import Json
from fencepost.store.base import (
    Claimed,
    ClaimRequest,
    DueJobs,
    HeartbeatReply,
    HeartbeatRequest,
    JobPage,
    Plan,
    Roster,
    Suspect,
    Swept,
    Update,
    Updated,
)
from fencepost.store.outbox import Checked, NoticeChange
from fencepost.store.postgres import fast, rest
from fencepost.store.postgres.arrays import Texts
from fencepost.store.postgres.connection import Connection
from fencepost.store.postgres.records import place_of
from fencepost.store.postgres.steps import PostgresSteps
from fencepost.store.rules import claims, history, outbox, planning, presence, updates, watching
from fencepost.store.unit_of_work import Confined

PRUNE_BATCH = 5000
TIDY_AFTER = 2000
"""Fires settled here."""

Way = Callable[..., Any]
"""Called with a connection and the arguments of the operation."""


class PostgresPaths:
    def __init__(self, steps: PostgresSteps, fast: bool, tidy: Callable[[], None]) -> None:
        """`fast`: take the fast path where there is one. `tidy`: remove what many settled fires have left."""
        self._steps = steps
        self._fast = fast
        self._tidy = tidy
        self._settled = 0
        self._ways: Mapping[Callable[..., Any], Way] = {
            presence.heartbeat: self._heartbeat,
            presence.roster: self._roster,
            presence.sweep: self._sweep,
            planning.due_jobs: self._due_jobs,
            planning.plan_fires: self._plan_fires,
            claims.claim_fires: self._claim_fires,
            updates.update_claims: self._update_claims,
            history.prune: self._prune,
            watching.watch_jobs: self._watch_jobs,
            outbox.update_outbox: self._update_outbox,
        }

    def write(self, db: Connection, step: Callable[..., Any], *args: Any) -> Any:
        """Take an operation of `rules/`."""
        way = self._ways.get(step)
        return self._steps.alone(db, step, *args) if way is None else way(db, *args)

    def read(self, db: Connection, step: Callable[..., Any], *args: Any) -> Any:
        """The same for one that changes nothing."""
        way = self._ways.get(step)
        return self._steps.read(db, step, *args) if way is None else way(db, *args)

    def _heartbeat(self, db: Connection, request: HeartbeatRequest) -> HeartbeatReply:
        steps = self._steps
        # A lease that cannot be read is written anew by the general path.
        fast_path = self._fast and not steps.unreadable.has("lease", "leader")
        reply = (
            fast.heartbeat(db, request, steps.now(), steps.unreadable, steps.targets) if fast_path else None
        )
        return reply or steps.alone(db, presence.heartbeat, request)

    def _roster(self, db: Connection) -> Roster:
        return fast.roster(db, self._steps.now(), self._steps.rows(db))

    def _sweep(self, db: Connection, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        steps = self._steps
        swept = fast.sweep(db, by, term, suspects, steps.now(), steps.rows(db)) if self._fast else None
        # The leader cleans up after many fires, of which it saw its share. The server would do it once a minute.
        if self._settled > TIDY_AFTER:
            self._settled = 0
            self._tidy()
        return swept[0] if swept else steps.alone(db, presence.sweep, by, term, suspects)

    def _due_jobs(self, db: Connection, horizon: float, limit: int) -> DueJobs:
        """Not beside a step that is alone: a pause that is being written would be missing in plans up to now."""
        with self._steps.transaction(db, "carefully(%s)", Texts(())) as (rows, at):
            return planning.due_jobs(rows, at, horizon, limit)

    def _plan_fires(self, db: Connection, plans: Sequence[Plan]) -> tuple[bool, ...]:
        written = fast.plan(db, plans, self._steps.now()) if self._fast else [False] * len(plans)
        rest = [number for number, done in enumerate(written) if not done]
        if rest:
            some = [plans[number] for number in rest]
            answers = self._steps.with_jobs(db, [plan.job_id for plan in some], planning.plan_fires, some)
            for number, answer in zip(rest, answers, strict=True):
                written[number] = answer
        return tuple(written)

    def _claim_fires(self, db: Connection, request: ClaimRequest) -> Claimed:
        steps = self._steps
        made = fast.claim(db, request, steps.now(), steps.unreadable) if self._fast else None
        if made is None:
            return steps.alone(db, claims.claim_fires, request)
        if made.returned:
            jobs = [place.job_id for place in (place_of(each.key) for each in made.returned) if place]
            steps.with_jobs(db, jobs, rest.update_more, db, request.replica, made.returned, True)
        if not made.order:
            return self._not_for_what_is_aside(db, request, made.claimed)
        # If this fails the replica asks again under the same number, and is answered with those.
        try:
            with steps.transaction(db, "carefully(%s)", Texts(())) as (rows, at):
                others = rest.claim_more(rows, at, request, len(made.claimed.claims))
                rows.save()
        except Confined:
            others = steps.alone(db, rest.claim_more, request, len(made.claimed.claims))
        return fast.together(made, others)

    def _not_for_what_is_aside(self, db: Connection, request: ClaimRequest, claimed: Claimed) -> Claimed:
        """Jobs that are set aside stay due on the server: no replica need ask again at once because of them."""
        if claimed.claims or not self._steps.unreadable.aside:
            return claimed
        return self._steps.with_jobs(db, (), rest.without_aside, request, claimed)

    def _update_claims(self, db: Connection, replica: str, changes: Sequence[Update]) -> Updated:
        if not self._fast:
            return self._steps.alone(db, updates.update_claims, replica, changes)
        done = fast.settle(db, replica, changes, self._steps.now())
        self._settled += len(changes)
        if changes and not done.rest:
            return done.updated
        some = [changes[number] for number in done.rest]
        jobs = [place.job_id for place in (place_of(update.key) for update in some) if place]
        others = self._steps.with_jobs(db, jobs, rest.update_more, db, replica, some, done.counted)
        accepted = list(done.updated.accepted)
        for number, answer in zip(done.rest, others.accepted, strict=True):
            accepted[number] = answer
        return replace(others, accepted=tuple(accepted))

    def _prune(self, db: Connection, keep_seconds: float) -> int:
        """A batch at a time: no other step waits for long, and what was deleted stays so if the next one fails."""
        gone, batch = 0, PRUNE_BATCH
        while batch == PRUNE_BATCH:
            asked = keep_seconds, PRUNE_BATCH, self._steps.now()[0]
            (batch,) = db.call("select {schema}.prune(%s, %s, %s)", *asked)
            gone += batch
        return gone + self._steps.alone(db, history.prune, keep_seconds)

    def _watch_jobs(
        self, db: Connection, by: str, term: int, page: JobPage | None, ids: Sequence[str]
    ) -> Checked | None:
        if page is not None:
            return self._steps.alone(db, watching.watch_jobs, by, term, page, ids)
        return self._steps.with_jobs(db, ids, watching.watch_jobs, by, term, None, ids)

    def _update_outbox(
        self, db: Connection, changes: Sequence[NoticeChange], report: Mapping[str, Json] | None
    ) -> tuple[bool, ...]:
        return self._steps.with_jobs(db, (), outbox.update_outbox, changes, report)
