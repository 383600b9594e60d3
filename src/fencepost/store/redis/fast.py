"""The fast path: what nearly always happens, as one script on the server.

Each method has one script do the whole step. A script does only what follows from a few numbers it has at hand, and
says what it has left undone; the general path (`step.py`) knows all rules and decides that. Which of the two it was
must never show: both are compared with the reference model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.clock import Clock
from fencepost.model import Era, FireRecord, JobRecord, State, changed, error_line
from fencepost.model.triggers import iso
from fencepost.store.base import (
    Claim,
    ClaimRequest,
    DueJobs,
    GiveBack,
    HeartbeatReply,
    HeartbeatRequest,
    Held,
    JobPage,
    Plan,
    Roster,
    Settle,
    Suspect,
    Swept,
    Upcoming,
    Update,
    Watched,
)
from fencepost.store.codec import micros, moment
from fencepost.store.redis import scripts
from fencepost.store.redis.keys import Keys, join, split, split_place
from fencepost.store.redis.link import Link
from fencepost.store.redis.scripts import Script
from fencepost.store.redis.values import (
    HOT,
    REPLICA,
    claimed_fire,
    cold_record,
    digest,
    ending_of,
    ending_with,
    fire_of,
    job_of,
    lease_of,
    replica_of,
    run_half,
    stamp,
    when,
)
from fencepost.store.rows import TargetRecord
from fencepost.store.rules.claims import jobs_to_decide
from fencepost.store.rules.notify_rules import RULES
from fencepost.store.texts import KnownJobs, target_record
from fencepost.store.unreadable import UnreadableRows, checked_job

MOST = 1_000
"""Fires that one script claims or settles."""
JOBS_KEPT = 20_000

Now = tuple[str, str]
"""The moment, if a test owns the time; else empty."""


def now_by(clock: Clock | None) -> Callable[[], Now]:
    if clock is None:
        return lambda: ("", "")
    return lambda: (str(micros(clock.wall())), f"{clock.steady():.6f}")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a script has claimed, each with its place in the order of what was due, and the jobs it has left."""

    made: dict[int, Claim]
    closed: dict[int, FireRecord]
    left: dict[int, str]
    wake_in: float | None
    steps: int
    ahead: tuple[Upcoming, ...] = ()
    returned: tuple[GiveBack, ...] = ()
    """Claims of jobs that cannot be read here, which only showed when they were made."""


@dataclass(frozen=True, slots=True)
class Settlements:
    accepted: list[bool]
    left: list[int]
    """Which ones must be decided on the general path."""
    steps: int
    wake_in: float | None
    next_at: datetime | None


class RedisFastPath:
    def __init__(
        self, link: Link, keys: Keys, targets: dict[str, tuple[str, ...]], registry: UnreadableRows
    ) -> None:
        """`targets`: what replicas know, by digest."""
        self._registry = registry
        self._link = link
        self._keys = keys
        self._targets = targets
        self.known_jobs: KnownJobs | None = None
        self._jobs: dict[str, JobRecord] = {}
        """Their cold side, by digest."""

    async def _run(self, script: Script, now: Now, *args: Any) -> Any:
        return await self._link.ask("EVALSHA", script, self._keys.prefix, *now, *args)

    # --- presence -------------------------------------------------------------------------------------------

    async def heartbeat(self, now: Now, request: HeartbeatRequest, history: str) -> HeartbeatReply | None:
        if (
            request.joining
            or request.draining
            or request.targets is not None
            or request.lingering is not None
        ):
            return None
        reply = await self._run(
            scripts.HEARTBEAT,
            now,
            request.replica,
            request.number,
            request.ttl,
            request.heartbeat,
            request.campaign.ttl if request.campaign else "",
            *_watched(request.campaign.watched if request.campaign else None),
            request.seen.incarnation,
            request.seen.server,
            request.seen.term,
            request.seen.steps,
            history,
        )
        if not reply[0]:
            return None
        _, wall, steps, lease, runs, peers = reply
        leader = self._registry.read("lease", "leader", lease_of, lease)
        if leader is None:
            return None
        held = (self._held(runs[n], runs[n + 1]) for n in range(0, len(runs), 2))
        claims = tuple(claim for claim in held if claim is not None)
        return HeartbeatReply(moment(int(wall)), True, leader, claims, steps, tuple(sorted(peers)))

    def _held(self, place: str, row: str) -> Held | None:
        job_id, member = split_place(place)
        key = join(job_id, member)
        fire = self._registry.read(
            "fire", key, fire_of, job_id, 0, row, State.RUNNING, job_id=job_id, holds=True
        )
        return None if fire is None else Held(key, fire.token, fire.claim_no, fire.cancel_requested)

    async def sweep(self, now: Now, by: str, term: int, suspects: Sequence[Suspect]) -> Swept | None:
        words: list[Any] = []
        for suspect in suspects:
            words += suspect.replica, suspect.renewals, "" if suspect.dead else suspect.seconds
        reply = await self._run(scripts.SWEEP, now, by, term, *words)
        if not reply[0]:
            return None
        _, wall, steady, lease, rows = reply
        leader = self._registry.read("lease", "leader", lease_of, lease)
        if leader is None:
            return None
        replicas = []
        for row in rows:
            known_by = dict(zip(REPLICA, row, strict=True))
            targets = self._targets.get(known_by["targets"]) if known_by["targets"] else ()
            if targets is None:
                return None  # the general path asks for them
            replica = self._registry.read("replica", row[0], replica_of, row, targets)
            if replica is None:
                return None
            replicas.append(replica)
        overdue = frozenset(replica.id for replica in replicas if replica.expires <= float(steady))
        replicas.sort(key=lambda replica: replica.id)
        return Swept(Roster(moment(int(wall)), leader, tuple(replicas), overdue, float(steady)))

    # --- jobs and planning -------------------------------------------------------------------------------------------

    async def jobs(self, ids: Sequence[str] | None, page: JobPage | None) -> tuple[JobRecord, ...]:
        """Without those that were removed; all, if no ids and no page are given."""
        if page is not None:
            return tuple(await self._page_of_jobs(page))
        if ids is not None:
            return tuple(await self._some_jobs(tuple(dict.fromkeys(ids))))
        found: dict[str, JobRecord] = {}
        cursor = "0"
        while True:
            cursor, some = await self._link.ask("HSCAN", self._keys.jobs, cursor, "COUNT", MOST)
            found.update({record.id: record for record in await self._some_jobs(some[::2])})
            if cursor == "0":
                return tuple(found.values())

    async def _page_of_jobs(self, page: JobPage) -> list[JobRecord]:
        """The ids are in no order on the server. All of them are small; the rest is read as far as the page goes."""
        ids = sorted(id for id in await self._link.ask("HKEYS", self._keys.jobs) if page.has(id))
        found: list[JobRecord] = []
        while ids and len(found) < page.limit:
            some, ids = ids[: page.limit - len(found)], ids[page.limit - len(found) :]
            found += await self._some_jobs(some)
        return found

    async def _some_jobs(self, ids: Sequence[str]) -> list[JobRecord]:
        """One command, so that checking what is declared costs little; see `replica/declaring.py`."""
        rows = await self._link.ask("EVALSHA", scripts.RECORDS, self._keys.prefix, *ids) if ids else ()
        found: list[JobRecord] = []
        for id, cold, hot, target in rows:
            record = self._job(id, hot, cold)
            if record is not None and not record.removed_at:
                found.append(self._with_unknown_since(record, target))
        return found

    def _with_unknown_since(self, record: JobRecord, row: str | None) -> JobRecord:
        """`row`: what is stored of its task."""
        target = self._registry.read("target", record.job.lane, target_record, row) if row else None
        if target is None or target.unknown_since is None:
            return record
        return changed(record, unknown_since=target.unknown_since)

    def _job(self, id: str, hot: Any, cold: str | JobRecord) -> JobRecord | None:
        """None: it cannot be read."""

        def decode() -> JobRecord:
            if isinstance(cold, JobRecord):
                return checked_job(job_of(hot, cold), id)
            if self.known_jobs is None:
                return checked_job(_job((cold, hot)), id)
            return checked_job(self.known_jobs.record(id, (cold, hot), _job), id)

        record = self._registry.read("job", id, decode, job_id=id, holds=True)
        if record is not None:
            self._registry.note_foreign(record)
        return record

    async def due_jobs(self, now: Now, horizon: float, limit: int) -> DueJobs:
        aside = self._registry.aside
        reply = await self._run(scripts.PLANS, now, round(horizon * 1_000_000), limit, *aside)
        wall, soonest, rows, gaps, lost_through = reply
        cold = await self._cold({hot[_TEXT]: id for id, hot in rows})
        found = [self._job(id, hot, cold[hot[_TEXT]]) for id, hot in rows if hot[_TEXT] in cold]
        jobs = [record for record in found if record is not None and record.foreign is None]
        targets = {record.job.lane: TargetRecord(record.job.lane) for record in jobs}
        read = [self._registry.read("target", name, target_record, row) for name, row in gaps]
        targets.update({target.name: target for target in read if target is not None})
        unknown = {name: target.gaps for name, target in targets.items()}
        return DueJobs(moment(int(wall)), tuple(jobs), when(soonest), unknown, when(lost_through))

    async def plan(self, now: Now, plans: Sequence[Plan]) -> list[int]:
        """Which ones must be decided on the general path."""
        left: list[int] = []
        for start in range(0, len(plans), MOST):
            left += [start + number for number in await self._plan(now, plans[start : start + MOST])]
        return left

    async def _plan(self, now: Now, plans: Sequence[Plan]) -> list[int]:
        left, fast = [], list[int]()
        first = min((row.first for plan in plans for row in plan.rows), default=None)
        words: list[Any] = [stamp(first)]
        for number, plan in enumerate(plans):
            if plan.until is not None or plan.next_at is None or any(row.count > 1 for row in plan.rows):
                left.append(number)
                continue
            fast.append(number)
            words += plan.job_id, plan.version, micros(plan.cursor), micros(plan.next_at), len(plan.rows)
            for row in plan.rows:
                words += micros(row.first), iso(row.first)
        if fast:
            left += [fast[number] for number in await self._run(scripts.PLAN, now, *words)]
        return sorted(left)

    # --- claims ---------------------------------------------------------------------------------------------

    async def claim(self, now: Now, request: ClaimRequest) -> Claims | None:
        if request.room > MOST:
            return None
        reply = await self._run(
            scripts.CLAIM,
            now,
            request.replica,
            request.number,
            request.room,
            jobs_to_decide(request.room),
            "" if request.term is None else request.term,
            request.incarnation,
            Era(request.incarnation).first_token,
            request.server,
            request.ahead,
            *self._registry.aside,
        )
        if not reply[0]:
            return None
        _, wall, steps, wake_in, rows, left, listed = reply
        at = moment(int(wall))
        cold = await self._cold({row[5]: row[1] for row in rows})
        made, closed, returned = dict[int, Claim](), {}, []
        for place, id, member, due, token, text, skipped in rows:
            fire = claimed_fire(id, member, int(due), int(token), request.replica, request.number, at)
            if text in cold and cold[text].foreign is None:
                made[place] = Claim(fire, cold[text].job)
            else:
                returned.append(GiveBack(fire.key, fire.token))
            if skipped:
                closed[place] = fire_of(id, int(skipped[0]), skipped[1])
        wake = None if wake_in is None else int(wake_in) / 1_000_000
        ahead = tuple(
            Upcoming(moment(int(at)), only == 1) for at, only in zip(listed[::2], listed[1::2], strict=True)
        )
        return Claims(made, closed, dict(left), wake, steps, ahead, tuple(returned))

    async def settle(self, now: Now, replica: str, updates: Sequence[Update]) -> Settlements:
        has_rules = await self._has_rules(updates)
        times = Counter(update.key for update in updates)
        left, fast, words = [], list[int](), list[Any]()
        for number, update in enumerate(updates):
            job_id, member = split(update.key)
            alone = times[update.key] == 1 and len(fast) < MOST
            if (
                not isinstance(update, Settle)
                or update.keep is not None
                or not alone
                or (has_rules and update.state is State.FAILED)
            ):
                left.append(number)
                continue
            fast.append(number)
            outcome = update.state, update.reason, update.error, update.output
            ending = ending_of(*outcome) if update.result is None else ending_with(*outcome, update.result)
            half = run_half(member, update.state, update.reason, error_line(update.error))
            words += job_id, member, update.token, ending, half, update.state.value
        undone, steps, wake_in, next_at = await self._run(scripts.SETTLE, now, replica, *words)
        left = sorted([*left, *(fast[number] for number in undone)])
        accepted = [True] * len(updates)
        for number in left:
            accepted[number] = False
        wake = None if wake_in is None else int(wake_in) / 1_000_000
        return Settlements(accepted, left, steps, wake, when(next_at))

    async def _has_rules(self, updates: Sequence[Update]) -> bool:
        """Whether a rule of notifications may ask for one of these failures: they are for the general path then."""
        if not any(isinstance(each, Settle) and each.state is State.FAILED for each in updates):
            return False
        return bool(await self._link.ask("HEXISTS", self._keys.entries, RULES))

    async def _cold(self, wanted: dict[str, str]) -> dict[str, JobRecord]:
        """What rarely changes of these jobs, by digest: asked for only if it has not been seen."""
        found = {text: self._jobs[text] for text in wanted if text in self._jobs}
        missing = {text: id for text, id in wanted.items() if text not in found}
        if missing:
            if len(self._jobs) + len(missing) > JOBS_KEPT:
                self._jobs.clear()
            rows = await self._link.ask("HMGET", self._keys.jobs, *missing.values())
            for (text, id), cold in zip(missing.items(), rows, strict=True):
                record = self._registry.read("job", id, cold_record, cold or "", job_id=id, holds=True)
                if record is None:
                    continue
                self._registry.note_foreign(record)
                found[text] = record
                if digest(cold) == text:  # else it was changed just now
                    self._jobs[text] = record
        return found


_TEXT = HOT.index("text")


def _job(row: tuple[str, Any]) -> JobRecord:
    cold, hot = row
    return job_of(hot, cold_record(cold))


def _watched(watched: Watched | None) -> tuple[str, int, int]:
    """How long, and what; a leader that is gone was watched for long enough."""
    if watched is None:
        return "", 0, 0
    return "1e9" if watched.gone else str(watched.seconds), watched.term, watched.renewals
