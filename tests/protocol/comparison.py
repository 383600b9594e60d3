"""A store against the reference model: the same random operations at the same moments, every reply compared.

    tally = await compare(harness, seed=17, steps=300)

The harness must be able to read its store's time (`Harness.moment`), and that time must stand still between
`advance` calls, so that store and model see the same `Moment`. A difference raises `Mismatch`, which carries
the seed and every operation up to it: the same seed gives the same operations again.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from fencepost.model import Backfill, FireRecord, Job, JobRecord, Lease, Origin, Overlap, State, manual_key
from fencepost.model.notices import EVERY_RUN
from fencepost.model.triggers import EARLIEST, Trigger, at, cron, every
from fencepost.model.triggers.following import After
from fencepost.model.watching import NotificationRule
from fencepost.replica.plan import expand, plans_of
from fencepost.store.base import (
    NO_JOB,
    Adopt,
    Alive,
    Campaign,
    ChangeJob,
    Claimed,
    ClaimRequest,
    DueJobs,
    FireQuery,
    GiveBack,
    HeartbeatRequest,
    JobPage,
    Missing,
    NewFire,
    Notices,
    Plan,
    PutJob,
    RemoteRuns,
    Report,
    RetryLater,
    Roster,
    Seen,
    Settle,
    Start,
    Suspect,
    Update,
    Watched,
)
from fencepost.store.outbox import NoticeChange, OutboxQuery
from fencepost.store.state import StoreState
from fencepost.testing.conformance import Harness, StoreConformance
from tests.protocol.model import OPERATIONS
from tests.protocol.sim.apart import draw_limits, draw_priority
from tests.protocol.sim.draw import varied

REPLICAS = ("a", "b", "c")
TARGETS = ("work", "play")
LANES = ("@dream", "work@gpu", "play@gpu")
JOBS = ("j1", "j2", "j3", "j4", "j5")
_OVERLAPS = ("skip", "queue", "queue(2)", "allow(2)", "allow(150)", "replace")
_CHAINED = {
    "j3": After(("j1",)),
    "j4": After(("j1", "j2"), "ended"),
    "j5": After(("j3",)),
    "j1": After(("j5",)),
}
"""The last one closes a circle."""
DEFINITIONS = 3
"""Of each job."""
ORIGINS = (
    None,
    None,
    Origin("shop:jobs.py", module="jobs", distribution="shop"),
    Origin("shop:jobs.py", module="jobs", distribution="shop"),
    Origin("/srv/billing.py", module="billing", file="/srv/billing.py"),
)
TTL = 30.0
HEARTBEAT = 10.0
FINALS = (State.SUCCEEDED, State.SUCCEEDED, State.FAILED, State.CANCELLED)


SEEDS = int(os.environ.get("FENCEPOST_COMPARISON_SEEDS", "20"))
"""Of random operations compared with the model. `make compare` takes many."""


class ComparedStore(StoreConformance):
    """Every rule, and the comparison with the model. A subclass gives the fixture `harness`."""

    @pytest.mark.parametrize("seed", range(SEEDS))
    async def test_it_agrees_with_the_model_over_random_operations(self, harness: Harness, seed: int) -> None:
        if harness.moment is None:
            pytest.skip("this harness cannot read its store's time")
        await compare(harness, seed, steps=120)


class Mismatch(AssertionError):
    """The store answered something else than the model."""


async def compare(harness: Harness, seed: int, steps: int = 300) -> Counter[str]:
    """Send `steps` random operations to the store and to a fresh model. What happened, counted."""
    return await Comparison(harness, seed).run(steps)


class Comparison:
    def __init__(self, harness: Harness, seed: int) -> None:
        if harness.moment is None:
            raise ValueError("this harness cannot read its store's time; give Harness(moment=…)")
        self.harness = harness
        self.moment = harness.moment
        self.seed = seed
        self.chance = random.Random(seed)
        self._readers = random.Random(f"{seed}:readers")
        self._traces = random.Random(f"{seed}:traces")
        self.model = StoreState()
        self.model.remembers_empty_claims = harness.store.remembers_empty_claims
        self.model.may_lose_writes = harness.store.may_lose_writes
        self.tally: Counter[str] = Counter()
        self.operations: list[str] = []
        self._heartbeats: Counter[str] = Counter()
        self._claims: Counter[str] = Counter()
        self._roster: Roster | None = None
        self._fires: dict[str, FireRecord] = {}
        """Fires as last heard of, current or not."""
        self._plans: list[Plan] = []
        self._manual = 0
        self._is_plain = seed % 4 == 1
        """In half of the quieter seeds there is nothing that leaves the fast path: it is compared, too."""
        self._notices = random.Random(f"notices {seed}")
        """Apart from the others, so that their draws stay what they were."""
        self._late = random.Random(f"{seed}:late")
        self._ahead = random.Random(f"{seed}:ahead")
        self._remote = random.Random(f"{seed}:remote") if seed % 3 == 2 else None
        """In a third of the seeds: some jobs run on an engine, or in a pool. Drawn apart from the rest."""

    async def run(self, steps: int) -> Counter[str]:
        for replica in REPLICAS:
            await self._join(replica)
        moves: dict[Callable[[], Awaitable[Any]], float] = {
            self._advance: 20,
            self._beat: 12,
            self._join_again: 2,
            self._leave: 1,
            self._sweep: 6,
            self._put: 6,
            self._put_earlier: 2,
            self._change: 5,
            self._plan: 14,
            self._claim: 18,
            self._update: 14,
            self._add: 5,
            self._backfill: 4,
            self._skip: 2,
            self._cancel: 3,
            self._look: 5,
            self._prune: 1,
            self._step_back: 1,
            self._remember_more: 1,
            self._forget_a_task: 0.2,
        }
        if (
            self.seed % 2
        ):  # every other seed is quieter: mostly fires that are planned, claimed and settled in time
            moves = {move: weight / 10 for move, weight in moves.items()} | {self._go_on: 12}
            del moves[self._remember_more]
            if self._is_plain:
                del moves[self._backfill], moves[self._skip]
        for move in self.chance.choices(list(moves), list(moves.values()), k=steps):
            await move()
            if self.seed % 3 == 0 and self._notices.random() < 0.2:
                await self._notice()
            if self._remote is not None and self._remote.random() < 0.3:
                await self._look_after_engine(self._remote)
            if self._is_plain and self._late.random() < 0.05:
                await self._fall_behind(self._late)
        await self._compare_everything()
        return self.tally

    # --- one operation ------------------------------------------------------------------------------------

    async def ask(self, operation: str, *args: Any) -> Any:
        """The same to both; the reply, if they agree."""
        moment = self.moment()
        self.operations.append(f"{moment.wall:%d %H:%M:%S.%f} {operation}{args!r}")
        self.tally[operation] += 1
        expected = OPERATIONS[operation](self.model, moment, *args)
        try:
            store = self.harness.store
            owner = store.notices if operation in Notices.__abstractmethods__ else store
            answered = await getattr(owner, operation)(*args)
        except Exception as error:
            raise Mismatch(self._told(f"the store raised {error!r}", expected, None)) from error
        difference = next(differences(_in_order(expected), _in_order(answered), "reply"), None)
        if difference is not None:
            raise Mismatch(self._told(difference, expected, answered))
        self._learn(expected)
        return expected

    def _told(self, difference: str, expected: Any, answered: Any) -> str:
        operations = "\n".join(f"  {n:4} {line}" for n, line in enumerate(self.operations))
        return (
            f"seed {self.seed}, operation {len(self.operations) - 1}: {difference}\n"
            f"operations:\n{operations}\nmodel: {expected!r}\nstore: {answered!r}"
        )

    def _learn(self, reply: Any) -> None:
        """Remember fires and the roster for later operations, and count what happened."""
        if isinstance(reply, Roster):
            self._roster = reply
        for fire in _fires_in(reply):
            known = self._fires.get(fire.key)
            self._fires[fire.key] = fire
            if known != fire:
                self.tally[f"{fire.state}: {fire.reason}" if fire.reason else str(fire.state)] += 1
        for each in reply if isinstance(reply, tuple) else (reply,):
            if hasattr(each, "outcome"):
                self.tally[each.outcome] += 1

    async def _compare_everything(self) -> None:
        await self.ask("roster")
        await self.ask("jobs")
        for job_id in JOBS:
            await self.ask("history", job_id)
        await self.ask("history_since", EARLIEST)
        await self.ask("find_fires", FireQuery(limit=100_000))
        await self.ask("outbox", OutboxQuery(limit=2_000, changes=True))

    # --- notifications ------------------------------------------------------------------------------------

    async def _notice(self) -> None:
        chance = self._notices
        kind = chance.choice(["rules", "rules", "watch", "watch", "read", "update"])
        if kind == "rules":
            channel = chance.choice(["ops", "pager"])
            causes = [
                "failed",
                "lost",
                "missed",
                "recovered",
                "late:30",
                "no_success:90",
                "failed_in_a_row:2",
            ]
            on = chance.sample(causes, chance.randint(1, 4)) if chance.random() < 0.8 else EVERY_RUN
            rule = NotificationRule(channel, tuple(on), chance.choice(["", "j1", "j[2-4]"]))
            if chance.random() < 0.5:
                await self.ask("put_rules", channel, [rule] if chance.random() < 0.9 else [])
            else:
                name = chance.choice(["one", "two"])
                by_hand = replace(rule, name=name, by="someone") if chance.random() < 0.7 else None
                await self.ask("change_rule", name, by_hand, "someone")
        elif kind == "watch":
            ids, lease = chance.sample(JOBS, 3), self.model.leader
            page = JobPage(chance.randint(1, 5), chance.choice(["", "j2"])) if chance.random() < 0.5 else None
            await self.ask("watch_jobs", lease.holder or "a", lease.term, page, ids)
        else:
            query = OutboxQuery(
                chance.choice(["", "ops"]),
                chance.random() < 0.3,
                limit=chance.randint(1, 20),
                changes=chance.random() < 0.3,
            )
            found = (await self.ask("outbox", query)).notices
            self.tally["notices"] += len(found)
            if found and kind == "update":
                some = chance.sample(found, min(len(found), 3))
                kinds: list[Any] = ["delivered", "delivered", "failed", "aside", "retry", "drop"]
                await self.ask(
                    "update_outbox", [NoticeChange(each.key, chance.choice(kinds)) for each in some]
                )

    # --- time ---------------------------------------------------------------------------------------------

    async def _advance(self) -> None:
        longest = self.chance.choices([2.0, 12.0, 40.0, 300.0, 4000.0, 20_000.0], [6, 8, 4, 2, 1, 0.2])[0]
        await self._pass(round(self.chance.uniform(0.001, longest), 3))

    async def _pass(self, seconds: float) -> None:
        self.operations.append(f"advance {seconds}")
        await self.harness.advance(seconds)

    async def _step_back(self) -> None:
        if self.harness.step_back is not None and self.chance.random() < 0.5:
            seconds = round(self.chance.uniform(0.1, 90), 3)
            self.operations.append(f"step back {seconds}")
            self.tally["step back"] += 1
            await self.harness.step_back(seconds)

    # --- replicas and leadership ----------------------------------------------------------------------------

    async def _join(self, replica: str) -> None:
        targets = tuple(t for t in TARGETS if self.chance.random() < 0.7)
        if self._remote is not None:
            targets += LANES
        await self.ask("heartbeat", self._beat_of(replica, joining=True, targets=targets))

    async def _join_again(self) -> None:
        await self._join(self.chance.choice(REPLICAS))

    async def _beat(self) -> None:
        chance = self.chance
        for replica in REPLICAS if chance.random() < 0.5 else (chance.choice(REPLICAS),):
            request = self._beat_of(replica, draining=chance.random() < 0.03)
            if chance.random() < 0.7:
                request = replace(request, campaign=Campaign(TTL, self._watched()))
            if chance.random() < 0.1:
                keys = sorted(self._fires)
                request = replace(
                    request, lingering=tuple(chance.sample(keys, min(len(keys), chance.randint(0, 2))))
                )
            if chance.random() < 0.1:
                request = replace(request, number=max(0, request.number - chance.randint(1, 3)))
            await self.ask("heartbeat", request)

    def _beat_of(self, replica: str, **given: Any) -> HeartbeatRequest:
        self._heartbeats[replica] += 1
        claim_no = self._claims[replica]
        return HeartbeatRequest(
            replica, self._heartbeats[replica], TTL, HEARTBEAT, claim_no=claim_no, **given
        )

    async def _remember_more(self) -> None:
        """A replica was told of something that the store does not have: it has lost data."""
        lease = self.model.leader
        seen = self.chance.choice(
            [
                Seen(lease.era.incarnation + 1),
                Seen(lease.era.incarnation, lease.term + 1),
                Seen(lease.era.incarnation, steps=1_000_000_000 + len(self.operations)),
                Seen(lease.era.incarnation - 1, lease.term + 1),
            ]
        )
        await self.ask("heartbeat", self._beat_of(self.chance.choice(REPLICAS), seen=seen))
        self.tally["data loss"] += self.model.leader.era.incarnation != lease.era.incarnation

    def _watched(self) -> Watched | None:
        if self._roster is None or self.chance.random() < 0.2:
            return None
        lease = self._roster.leader
        return Watched(lease.term, lease.renewals, self._observed(), gone=self.chance.random() < 0.05)

    def _observed(self) -> float:
        return self.chance.choice([0.0, 1.4, 1.5, 1.6]) * self.chance.choice([HEARTBEAT, TTL])

    async def _leave(self) -> None:
        await self.ask("leave", self.chance.choice(REPLICAS))

    async def _sweep(self) -> None:
        roster: Roster = await self.ask("roster")
        suspects = [
            Suspect(
                replica.id,
                replica.renewals - (self.chance.random() < 0.1),
                self._observed(),
                dead=self.chance.random() < 0.05,
            )
            for replica in roster.replicas
            if replica.id != roster.leader.holder and self.chance.random() < 0.6
        ]
        swept = await self.ask("sweep", *self._led(roster.leader), suspects)
        if swept is not None:
            self.tally["swept"] += len(swept.expired)

    async def _forget_a_task(self) -> None:
        """Nobody knows it any more, for longer than an hour."""
        targets = (self.chance.choice(TARGETS),)
        for replica in REPLICAS:
            await self.ask("heartbeat", self._beat_of(replica, targets=targets, campaign=Campaign(TTL)))
        for seconds in (0.0, 3600.0, 0.0):
            await self._pass(seconds)
            await self.ask("sweep", self.model.leader.holder or "a", self.model.leader.term, ())

    def _led(self, lease: Lease) -> tuple[str, int]:
        """Who sweeps, in which term: mostly the leader, in its own."""
        if self.chance.random() < 0.9:
            return lease.holder or "a", lease.term
        return self.chance.choice(REPLICAS), lease.term - self.chance.randint(0, 1)

    # --- jobs -----------------------------------------------------------------------------------------------

    async def _put(self) -> None:
        chance = self.chance
        puts = []
        for _ in range(chance.randint(1, 3)):
            revision = chance.choice([None, None, None, 1, 2])
            by = chance.choice(["", *REPLICAS])
            put = PutJob(self._draw_job(), revision, by, replace=chance.random() < 0.9)
            if chance.random() < 0.15:
                put = replace(put, source="api")
            puts.append(self._expecting(replace(put, origin=chance.choice(ORIGINS))))
        await self.ask("put_jobs", puts)

    def _expecting(self, put: PutJob) -> PutJob:
        """Some name the definition that they have seen: the one that holds, an earlier one, or none."""
        if self._readers.random() < 0.8:
            return put
        known = self.model.jobs.rows.get(put.job.id)
        seen = [NO_JOB, *((known.fingerprint, known.fingerprint, *known.earlier) if known else ())]
        return replace(put, expected=self._readers.choice(seen))

    async def _put_earlier(self) -> None:
        """A definition that has been replaced: code declares it again, or somebody asks for it now."""
        known = self.model.jobs.rows
        drawn = [self._definition(id, number) for id in JOBS for number in range(DEFINITIONS)]
        earlier = [job for job in drawn if job.id in known and job.fingerprint in known[job.id].earlier]
        if earlier:
            job, by = self.chance.choice(earlier), self.chance.choice(REPLICAS)
            await self.ask("put_jobs", [PutJob(job, by=by, chosen=self.chance.random() < 0.5)])

    def _draw_job(self) -> Job:
        return self._definition(self.chance.choice(JOBS), self.chance.randrange(DEFINITIONS))

    def _definition(self, id: str, number: int) -> Job:
        """One of few for each id, so that they come back. In half of the seeds with priorities."""
        job = self._usual(id, number)
        if self.seed // 4 % 2:
            return job
        return replace(job, priority=draw_priority(f"{self.seed}:{id}:{number}"))

    def _usual(self, id: str, number: int) -> Job:
        chance = random.Random(f"{self.seed}:{id}:{number}")
        if self._is_plain:
            plain = replace(self._local(id, chance), jitter=None)
            return replace(plain, overlap=Overlap()) if plain.overlap.kind == "replace" else plain
        job = replace(self._local(id, chance), limits=draw_limits(f"{self.seed}:{id}:{number}"))
        if self.seed % 3 == 0 and number and id in _CHAINED:
            job = replace(job, trigger=_CHAINED[id])
        if self._remote is None or random.Random(f"{self.seed}:{id}:{number}:remote").random() < 0.4:
            return job
        if number % 2:
            return replace(job, execute_on="gpu")
        return replace(job, engine="dream", engine_options={"queue": id})

    def _local(self, id: str, chance: random.Random) -> Job:
        return Job(
            id,
            chance.choice(TARGETS),
            self._draw_trigger(chance),
            args={"n": chance.randint(0, 9)},
            overlap=Overlap.parse(chance.choice(_OVERLAPS)),
            misfire=chance.choice(["latest", "all", "skip"]),
            misfire_after=timedelta(seconds=chance.choice([2.5, 30])),
            timeout=chance.choice([None, timedelta(seconds=60)]),
            after_crash=chance.choice(["record", "rerun"]),
            crash_attempts=chance.randint(1, 2),
            execute_on=chance.choice(["any", "any", "leader"]),
            jitter=chance.choice([None, None, None, timedelta(seconds=4)]),
        )

    def _draw_trigger(self, chance: random.Random) -> Trigger | None:
        start = self.moment().wall.replace(microsecond=0)
        kind = chance.randint(0, 9)
        if kind == 0:
            return None
        if kind == 1:
            return at(*(start + timedelta(seconds=chance.randint(-10, 500)) for _ in range(5)))
        if kind == 2:
            return cron("* * * * *", tz=chance.choice(["UTC", "Asia/Kolkata"]))
        anchor = start - timedelta(seconds=chance.randint(0, 100)) if kind < 5 else None
        grid = every(seconds=chance.choice([2.5, 5, 10, 20, 60]), anchor=anchor)
        return varied(grid, start, chance.getstate()[1][-9:])

    async def _change(self) -> None:
        kind = self.chance.choices(["pause", "resume", "remove"], [4, 4, 1])[0]
        until = None
        if kind == "pause" and self.chance.random() < 0.5:
            until = self.moment().wall + timedelta(seconds=self.chance.randint(1, 100))
        note, anew = self.chance.choice(["", "", "note", "other"]), self.chance.random() < 0.2
        change = ChangeJob(self.chance.choice(JOBS), kind, note, "ann", until, anew)  # type: ignore[arg-type]
        if kind == "remove" and self.chance.random() < 0.5:
            change = replace(change, if_undeclared=True)
        known = self.model.jobs.rows.get(change.job_id)
        if (
            known is not None and self.chance.random() < 0.3
        ):  # as read before, or after, its trigger was changed
            change = replace(change, version=known.version - self.chance.randint(0, 1))
        if known is not None and self._readers.random() < 0.2:
            change = replace(change, expected=self._readers.choice([known.fingerprint, *known.earlier]))
        await self.ask("change_job", change)

    async def _backfill(self) -> None:
        """Start one, or act on one."""
        chance, now = self.chance, self.moment().wall
        id = chance.choice(JOBS)
        record = self.model.jobs.rows.get(id)
        names = [each.name for each in record.backfills] if record else []
        if names and chance.random() < 0.6:
            kind = chance.choice(["pause backfill", "resume backfill", "resume backfill", "cancel backfill"])
            await self.ask("change_job", ChangeJob(id, kind, by="ann", name=chance.choice(names)))  # type: ignore[arg-type]
            return
        since = now - timedelta(seconds=chance.choice([30, 300, 2000]))
        trigger = every(seconds=chance.choice([5, 20]), anchor=since)
        backfill = Backfill(f"b{len(names)}", trigger, since, now, since, limit=chance.randint(1, 3))
        backfill = replace(backfill, reverse=chance.random() < 0.5, only_missing=chance.random() < 0.5)
        await self.ask("change_job", ChangeJob(id, "backfill", by="ann", backfill=backfill))

    async def _skip(self) -> None:
        chance = self.chance
        record = self.model.jobs.rows.get(chance.choice(JOBS))
        ahead = record.next_run_after(self.moment().wall) if record else None
        if record is None or ahead is None:
            return
        skips = [each.due_at for each in record.skips]
        if skips and chance.random() < 0.3:
            await self.ask("change_job", ChangeJob(record.id, "unskip", due_at=chance.choice(skips)))
        else:
            due_at = ahead + timedelta(seconds=chance.choice([0, 0, 0, 1]))
            await self.ask("change_job", ChangeJob(record.id, "skip", "holiday", "ann", due_at=due_at))

    async def _plan(self) -> None:
        chance = self.chance
        horizon = chance.choice([0.0, 20.0, 90.0])
        due: DueJobs = await self.ask("due_jobs", horizon, chance.choice([1, 3, 100]))
        plans = [each for record in due.jobs for each in self._plans_of(record, due, horizon)]
        if self._plans and chance.random() < 0.2:
            plans.append(chance.choice(self._plans))
        if plans:
            self._plans = [*self._plans, *plans][-20:]
            written = await self.ask("plan_fires", plans)
            self.tally["plan refused"] += written.count(False)
            self.tally["stretch"] += sum(1 for plan in plans for row in plan.rows if row.count > 1)

    def _plans_of(self, record: JobRecord, due: DueJobs, horizon: float) -> list[Plan]:
        """Also one that adds nothing."""
        plans = plans_of(record, due.now, horizon, due.gaps_of(record))
        if record.segments and all(plan.backfill for plan in plans):
            plans.append(expand(record, due.now, horizon, due.gaps_of(record)))
        return plans

    # --- fires ----------------------------------------------------------------------------------------------

    async def _claim(self) -> None:
        chance = self.chance
        replica = chance.choice(REPLICAS)
        draw = chance.random()
        if draw < 0.85:
            self._claims[replica] += 1
        number = self._claims[replica] - (draw > 0.95)
        lease = self._roster.leader if self._roster else Lease()
        term = lease.term - (chance.random() < 0.1) if lease.holder == replica else None
        incarnation = self.model.leader.era.incarnation - (chance.random() < 0.05)
        request = ClaimRequest(replica, number, chance.choice([0, 1, 3, 200]), term, incarnation)
        reply: Claimed = await self.ask("claim_fires", self._with_ahead(request))
        self.tally["claimed"] += len(reply.claims)

    def _with_ahead(self, request: ClaimRequest) -> ClaimRequest:
        return replace(request, ahead=self._ahead.choice([0, 1, 2, 18]))

    async def _update(self) -> None:
        running = [fire for fire in self._fires.values() if fire.state is State.RUNNING]
        some = self.chance.sample(running, min(len(running), self.chance.randint(0, 4)))
        if self._fires and self.chance.random() < 0.2:
            some.append(self.chance.choice(list(self._fires.values())))
        updates = [self._draw_update(fire) for fire in some]
        reply = await self.ask("update_claims", self.chance.choice(REPLICAS), updates)
        self.tally["accepted"] += sum(reply.accepted)
        self.tally["refused"] += reply.accepted.count(False)
        for fire in some:
            await self.ask("find_fires", FireQuery(key=fire.key))

    async def _go_on(self) -> None:
        """What happens nearly all the time: the next fires fall due, are claimed soon and settled."""
        replica = self.chance.choice(REPLICAS)
        await self.ask("heartbeat", self._beat_of(replica, targets=TARGETS))
        await self._plan()
        soonest = self.model.jobs.soonest(None, leads=True)
        ahead = (soonest - self.moment().wall).total_seconds() if soonest else 0.0
        await self._pass(round(max(0.0, ahead) + self.chance.uniform(0, 2), 3))
        self._claims[replica] += 1
        incarnation = self.model.leader.era.incarnation
        request = ClaimRequest(replica, self._claims[replica], 20, None, incarnation)
        claimed: Claimed = await self.ask("claim_fires", self._with_ahead(request))
        await self._pass(round(self.chance.uniform(0, 3), 3))
        settles = [Settle(claim.fire.key, claim.fire.token, State.SUCCEEDED) for claim in claimed.claims]
        kept = [settle for settle in settles if self.chance.random() < 0.9]
        await self.ask("update_claims", replica, kept)
        await self.ask("find_fires", FireQuery(limit=20))

    async def _fall_behind(self, chance: random.Random) -> None:
        """A job's fires are missed under one policy. Under the next, before any was claimed, more are late."""
        records = [each for each in self.model.jobs.rows.values() if each.segments]
        if not records:
            return
        job, replica = chance.choice(sorted(records, key=lambda each: each.id)).job, chance.choice(REPLICAS)
        in_time = timedelta(seconds=1)
        for misfire in ("skip", "latest"):
            put = PutJob(replace(job, misfire=misfire, misfire_after=in_time), by=replica, chosen=True)
            await self.ask("put_jobs", [put])
            await self.ask("heartbeat", self._beat_of(replica, targets=TARGETS))
            due: DueJobs = await self.ask("due_jobs", 90.0, 100)
            await self.ask(
                "plan_fires", [each for job in due.jobs for each in self._plans_of(job, due, 90.0)]
            )
            ahead = sorted(fire.due_at for fire in self.model.fires.planned_after(job.id, due.now))
            late_at = ahead[min(2, len(ahead) - 1)] + 1.2 * in_time if ahead else due.now
            await self._pass(max(0.0, (late_at - self.moment().wall).total_seconds()))
            self._claims[replica] += 1
            incarnation = self.model.leader.era.incarnation
            request = ClaimRequest(replica, self._claims[replica], 20, None, incarnation)
            await self.ask("claim_fires", request)

    def _draw_update(self, fire: FireRecord) -> Update:
        chance = self.chance
        key, token = fire.key, fire.token - (chance.random() < 0.05)
        kind = chance.randint(0, 5)
        if kind == 0:
            return RetryLater(key, token, chance.choice([0.0, 3.0, 50.0]), "boom")
        if kind == 1:
            return GiveBack(key, token, started=chance.random() < 0.5)
        if kind == 2:
            saves = chance.random() < 0.5
            output = chance.choice([None, "so far"])
            progress, checkpoint = {"done": chance.randint(0, 9)}, [1] if saves else None
            return Report(key, token, progress, saves, checkpoint, output, self._draw_trace())
        settle = Settle(key, token, chance.choice(FINALS), chance.choice([None, "reason"]))
        extra = chance.random()  # most have neither
        if extra < 0.1:
            return replace(settle, output="all\n")
        if extra < 0.2:
            return replace(settle, result=chance.choice([{"rows": 3}, [None], 0, "text"]))
        return replace(settle, keep={"tag": token}) if extra > 0.95 else settle

    async def _look_after_engine(self, chance: random.Random) -> None:
        replica = chance.choice(REPLICAS)
        runs: RemoteRuns = await self.ask("remote_runs", replica, "dream")
        fires = [claim.fire for claim in (*runs.mine, *runs.orphaned)]
        some = chance.sample(fires, min(len(fires), chance.randint(0, 3)))
        updates = [self._draw_remote(chance, fire, replica) for fire in some]
        reply = await self.ask("update_claims", chance.choice(["worker", replica]), updates)
        self.tally["remote"] += sum(reply.accepted)
        for fire in some:
            await self.ask("find_fires", FireQuery(key=fire.key))

    def _draw_remote(self, chance: random.Random, fire: FireRecord, replica: str) -> Update:
        key, token, worker = fire.key, fire.token - (chance.random() < 0.05), chance.choice(["v", "w"])
        kind, beats = chance.randint(0, 4), dict(fire.remote or {}).get("beats", 0)
        if kind == 0:
            return Adopt(key, token, replica)
        if kind < 3:
            return Start(key, token, worker, HEARTBEAT, chance.choice([None, TTL]))
        if kind == 3:
            return Alive(key, token, worker, HEARTBEAT, TTL)
        then = chance.choice([None, None, Settle(key, token, State.FAILED, error="exit code 1")])
        seen = beats - (chance.random() < 0.1)
        return Missing(
            key, token, seen, chance.choice([1.0, 20.0, 50.0]), chance.choice([1, 2]), then, "gone"
        )

    async def _add(self) -> None:
        chance = self.chance
        self._manual += chance.random() < 0.85
        job_id = chance.choice([*JOBS, "nothing"])
        if_active = chance.choice(["queue", "refuse"])
        key = manual_key(job_id, f"m{self._manual}")
        repeats = chance.choice(
            [None, {"key": "a!b", "due_at": "2026-11-15T12:00:00.000000Z", "effect_key": "a!b"}]
        )
        trace = {"caller": found} if (found := self._draw_trace()) else None
        new = NewFire(key, job_id, {"x": 1}, if_active, "ann", repeats, trace)  # type: ignore[arg-type]
        if self._is_plain:
            pass
        elif chance.random() < 0.4:
            new = replace(new, delay=chance.choice([0.5, 7.0, 100.0]))
        elif chance.random() < 0.2:
            new = replace(new, due_at=self.moment().wall + timedelta(seconds=chance.choice([-9, 40])))
        await self.ask("add_fire", new)

    def _draw_trace(self) -> str | None:
        """Most have none."""
        draws = self._traces
        return f"00-{draws.getrandbits(128):032x}-00f067aa0ba902b7-01" if draws.random() < 0.3 else None

    async def _cancel(self) -> None:
        key = self.chance.choice([*self._fires, "nothing"])
        running = [fire for fire in self._fires.values() if fire.state is State.RUNNING]
        if running and self.chance.random() < 0.3:
            fire = self.chance.choice(running)
            await self.ask("cancel_fire", fire.key, "ann", fire.token - (self.chance.random() < 0.1))
        else:
            await self.ask("cancel_fire", key, "ann")

    # --- looking --------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        chance = self.chance
        await self.ask("find_fires", self._draw_query())
        what = chance.randint(0, 3)
        if what == 0:
            await self.ask("roster")
        elif what == 1:
            await self.ask("jobs", chance.choice([None, ["j3", "j1", "nothing"]]))
            number = len(self.operations)
            page = JobPage(1 + number % 4, ("", "j1", "j3")[number % 3], ("", "J")[number % 2])
            await self.ask("jobs", None, page)
            some = (*list(self._fires)[number % 3 :: 3][:5], "nothing")
            await self.ask("find_fires", FireQuery(keys=some, states=((), (State.RUNNING,))[number % 2]))
        elif what == 2:
            await self.ask("history", chance.choice([*JOBS, "nothing"]))
        else:
            await self.ask("history_since", self.moment().wall - timedelta(minutes=5))

    def _draw_query(self) -> FireQuery:
        chance = self.chance
        now = self.moment().wall

        def some_time() -> datetime | None:
            return now + timedelta(seconds=chance.randint(-300, 60)) if chance.random() < 0.3 else None

        return FireQuery(
            job_id=chance.choice([None, *JOBS]),
            states=tuple(chance.sample(list(State), chance.choice([0, 0, 1, 3]))),
            since=some_time(),
            until=some_time(),
            limit=chance.choice([1, 5, 500]),
        )

    async def _prune(self) -> None:
        self.tally["pruned"] += await self.ask("prune", self.chance.choice([0.0, 60.0, 3600.0]))


# --- what counts as equal ---------------------------------------------------------------------------------


def _in_order(reply: Any) -> Any:
    """Put in order what the interface leaves without one: the replicas of a roster, what a replica holds, and
    jobs."""
    if isinstance(reply, Roster):
        return replace(reply, replicas=tuple(sorted(reply.replicas, key=lambda replica: replica.id)))
    if getattr(reply, "roster", None) is not None:
        return replace(reply, roster=_in_order(reply.roster), settled=_by_key(reply.settled))
    if getattr(reply, "held", None):
        return replace(reply, held=_by_key(reply.held))
    if isinstance(reply, tuple) and reply and isinstance(reply[0], JobRecord):
        return tuple(sorted(reply, key=lambda record: record.id))
    return reply


def _by_key(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(sorted(values, key=lambda value: value.key))


def differences(expected: Any, answered: Any, path: str) -> Iterator[str]:
    """Where two replies differ. Numbers may differ by a millisecond: not every store keeps all digits."""
    if isinstance(expected, float) and isinstance(answered, float | int):
        if not math.isclose(expected, answered, rel_tol=0, abs_tol=1e-3):
            yield f"{path} is {answered!r}, not {expected!r}"
    elif is_dataclass(expected) and type(expected) is type(answered):
        for each in fields(expected):
            one, other = getattr(expected, each.name), getattr(answered, each.name)
            if "str" in str(each.type) and isinstance(one, str) and isinstance(other, str):
                one, other = str(one), str(other)  # a reason is text, whether or not it is one of ours
            yield from differences(one, other, f"{path}.{each.name}")
    elif _is_mapping(expected) and _is_mapping(answered) and expected.keys() == answered.keys():
        for key in expected:
            yield from differences(expected[key], answered[key], f"{path}[{key!r}]")
    elif _is_list(expected) and _is_list(answered) and len(expected) == len(answered):
        for n, (one, other) in enumerate(zip(expected, answered, strict=True)):
            yield from differences(one, other, f"{path}[{n}]")
    elif type(expected) is not type(answered) or expected != answered:
        yield f"{path} is {answered!r}, not {expected!r}"


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple | list)


def _fires_in(reply: Any) -> Iterator[FireRecord]:
    if isinstance(reply, FireRecord):
        yield reply
    elif isinstance(reply, Claimed):
        yield from reply.closed
        yield from (claim.fire for claim in reply.claims)
    elif isinstance(reply, RemoteRuns):
        yield from (claim.fire for claim in (*reply.mine, *reply.orphaned))
    elif isinstance(reply, tuple):
        yield from (fire for fire in reply if isinstance(fire, FireRecord))
    else:
        yield from getattr(reply, "settled", ())
