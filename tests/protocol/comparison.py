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

from fencepost.model import FireRecord, Job, JobRecord, Lease, Origin, Overlap, State, manual_key
from fencepost.model.triggers import EARLIEST, Trigger, at, cron, every
from fencepost.replica.plan import expand
from fencepost.store.base import (
    Beat,
    Campaign,
    ChangeJob,
    Claimed,
    ClaimRequest,
    DueJobs,
    FireQuery,
    GiveBack,
    JobPage,
    NewFire,
    Plan,
    PutJob,
    Report,
    RetryLater,
    Roster,
    Seen,
    Settle,
    Suspect,
    Update,
    Watched,
)
from fencepost.store.state import StoreState
from fencepost.testing.conformance import Harness, StoreConformance
from tests.protocol.model import OPERATIONS
from tests.protocol.sim.draw import varied

REPLICAS = ("a", "b", "c")
TARGETS = ("work", "play")
JOBS = ("j1", "j2", "j3", "j4", "j5")
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
        self.model = StoreState()
        self.model.remembers_empty_claims = harness.store.remembers_empty_claims
        self.model.may_lose_writes = harness.store.may_lose_writes
        self.tally: Counter[str] = Counter()
        self.operations: list[str] = []
        self._beats: Counter[str] = Counter()
        self._claims: Counter[str] = Counter()
        self._roster: Roster | None = None
        self._fires: dict[str, FireRecord] = {}
        """Fires as last heard of, current or not."""
        self._plans: list[Plan] = []
        self._manual = 0

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
        for move in self.chance.choices(list(moves), list(moves.values()), k=steps):
            await move()
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
            answered = await getattr(self.harness.store, operation)(*args)
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
        await self.ask("heartbeat", self._beat_of(replica, joining=True, targets=targets))

    async def _join_again(self) -> None:
        await self._join(self.chance.choice(REPLICAS))

    async def _beat(self) -> None:
        chance = self.chance
        for replica in REPLICAS if chance.random() < 0.5 else (chance.choice(REPLICAS),):
            beat = self._beat_of(replica, draining=chance.random() < 0.03)
            if chance.random() < 0.7:
                beat = replace(beat, campaign=Campaign(TTL, self._watched()))
            if chance.random() < 0.1:
                keys = sorted(self._fires)
                beat = replace(
                    beat, lingering=tuple(chance.sample(keys, min(len(keys), chance.randint(0, 2))))
                )
            if chance.random() < 0.1:
                beat = replace(beat, number=max(0, beat.number - chance.randint(1, 3)))
            await self.ask("heartbeat", beat)

    def _beat_of(self, replica: str, **given: Any) -> Beat:
        self._beats[replica] += 1
        claim_no = self._claims[replica]
        return Beat(replica, self._beats[replica], TTL, HEARTBEAT, claim_no=claim_no, **given)

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
            puts.append(replace(put, origin=chance.choice(ORIGINS)))
        await self.ask("put_jobs", puts)

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
        """One of few for each id, so that they come back."""
        chance = random.Random(f"{self.seed}:{id}:{number}")
        return Job(
            id,
            chance.choice(TARGETS),
            self._draw_trigger(chance),
            args={"n": chance.randint(0, 9)},
            overlap=Overlap.parse(chance.choice(["skip", "queue", "queue(2)", "allow(2)", "allow(150)"])),
            misfire=chance.choice(["latest", "all", "skip"]),
            misfire_after=timedelta(seconds=chance.choice([2.5, 30])),
            timeout=chance.choice([None, timedelta(seconds=60)]),
            after_crash=chance.choice(["record", "rerun"]),
            crash_attempts=chance.randint(1, 2),
            execute_on=chance.choice(["any", "any", "leader"]),
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
        await self.ask("change_job", change)

    async def _plan(self) -> None:
        chance = self.chance
        horizon = chance.choice([0.0, 20.0, 90.0])
        due: DueJobs = await self.ask("due_jobs", horizon, chance.choice([1, 3, 100]))
        plans = [expand(record, due.now, horizon, due.gaps_of(record)) for record in due.jobs]
        if self._plans and chance.random() < 0.2:
            plans.append(chance.choice(self._plans))
        if plans:
            self._plans = [*self._plans, *plans][-20:]
            written = await self.ask("plan_fires", plans)
            self.tally["plan refused"] += written.count(False)
            self.tally["stretch"] += sum(1 for plan in plans for row in plan.rows if row.count > 1)

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
        reply: Claimed = await self.ask(
            "claim_fires", ClaimRequest(replica, number, chance.choice([0, 1, 3, 200]), term, incarnation)
        )
        self.tally["claimed"] += len(reply.claims)

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
        claimed: Claimed = await self.ask(
            "claim_fires", ClaimRequest(replica, self._claims[replica], 20, None, incarnation)
        )
        await self._pass(round(self.chance.uniform(0, 3), 3))
        settles = [Settle(claim.fire.key, claim.fire.token, State.SUCCEEDED) for claim in claimed.claims]
        kept = [settle for settle in settles if self.chance.random() < 0.9]
        await self.ask("update_claims", replica, kept)
        await self.ask("find_fires", FireQuery(limit=20))

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
            return Report(key, token, {"done": chance.randint(0, 9)}, saves, [1] if saves else None, output)
        settle = Settle(key, token, chance.choice(FINALS), chance.choice([None, "reason"]))
        extra = chance.random()  # most have neither
        if extra < 0.1:
            return replace(settle, output="all\n")
        if extra < 0.2:
            return replace(settle, result=chance.choice([{"rows": 3}, [None], 0, "text"]))
        return replace(settle, keep={"tag": token}) if extra > 0.95 else settle

    async def _add(self) -> None:
        chance = self.chance
        self._manual += chance.random() < 0.85
        job_id = chance.choice([*JOBS, "nothing"])
        if_active = chance.choice(["queue", "refuse"])
        key = manual_key(job_id, f"m{self._manual}")
        repeats = chance.choice(
            [None, {"key": "a!b", "due_at": "2026-11-15T12:00:00.000000Z", "effect_key": "a!b"}]
        )
        new = NewFire(key, job_id, {"x": 1}, if_active, "ann", repeats)  # type: ignore[arg-type]
        await self.ask("add_fire", new)

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
    elif isinstance(reply, tuple):
        yield from (fire for fire in reply if isinstance(fire, FireRecord))
    else:
        yield from getattr(reply, "settled", ())
