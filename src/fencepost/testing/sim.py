"""The simulator: real replicas, real protocol, virtual time, faults drawn by a seed.

    python -m fencepost.testing.sim --seeds 500          many seeds, in parallel
    python -m fencepost.testing.sim --seed 17 --trace    one seed again, as a readable trace

Three replicas run their real loops, each in a process of its own with wrong clocks, over the reference model
behind a bad network. First come faults, then all is well and everything must settle. The same seed gives the
same trace, on any machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from fencepost.clock import seconds
from fencepost.fire import Fire
from fencepost.host import InlineHost
from fencepost.model import Job, Overlap, manual_key
from fencepost.replica import Identity, Replica
from fencepost.retry import Retry
from fencepost.settings import Settings
from fencepost.store.base import ChangeJob, NewFire, PutJob
from fencepost.tasks import Registry, Task
from fencepost.testing.checker import Checker
from fencepost.testing.network import Network, Weather, remote_store
from fencepost.testing.trace import told
from fencepost.testing.world import Process, World
from fencepost.triggers import Trigger, cron, every

TTL = 6.0
HEARTBEAT = 2.0
SETTINGS = Settings(leader_ttl=TTL, run_ttl=TTL, heartbeat=HEARTBEAT, horizon=20, slots=4, drain_timeout=5)  # type: ignore[arg-type]
REPLICAS = 3
TAIL = 10.0
"""Seconds at the end in which steady state is expected."""


@dataclass
class Member:
    """A replica in its process, with clocks of its own."""

    process: Process
    wall_offset: float
    steady_offset: float
    drift: float
    replica: Replica = field(init=False)
    stopping: bool = False
    ill_until: float = 0.0
    """Until then it may rightly be declared dead: paused, cut off, or just back."""

    def wall(self) -> datetime:
        return self.process.world.datetime(self.wall_offset)

    def steady(self) -> float:
        return self.process.world.now * (1 + self.drift) + self.steady_offset


@dataclass
class Result:
    seed: int
    violations: list[str]
    fires: int
    faults: int
    digest: str
    trace: list[str]


class Simulation:
    def __init__(self, seed: int, trace: bool = False) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.world = World()
        self.network = Network(self.world, random.Random(f"{seed}:network"))
        self.network.on_commit = self._committed
        self.network.evidence_every = self.chance.choice([None, 0.3])
        self.network.is_dead = lambda name: self.members[name].process.killed
        self.state = self.network.state
        self.checker = Checker(self.state, TTL)
        self.members: dict[str, Member] = {}
        self.faults = 0
        self.calm = False
        self.manual = 0
        self.keep_trace = trace
        self.trace: list[str] = []
        self._digest = hashlib.sha256()
        self.jobs = self._draw_jobs()
        self.fault_seconds = self.chance.uniform(40.0, 80.0)
        self.faults_per_second = self.chance.choice([0.2, 0.5, 1.0])
        # In a minority of seeds: two checks need the store's clock to be steady (see the checker).
        self.store_clock_steps = self.chance.random() < 0.3

    def run(self) -> Result:
        for _ in range(REPLICAS):
            self._start_member()
        self._next_fault()
        self.world.at(self.fault_seconds, self._heal)
        end = self.fault_seconds + 2 * TTL + 12.0 + TAIL
        self.world.at(end - TAIL, self._expect_punctuality)
        self.world.run_until(end)
        self._check_leader()
        until = self.network.moment().wall - timedelta(seconds=6)
        self.checker.finish(until)
        for member in self.members.values():
            for error in member.process.errors:
                self.checker.violation("code", f"{member.process.name}: {error}")
        return Result(
            self.seed,
            self.checker.violations,
            len(self.state.fires),
            self.faults,
            self._digest.hexdigest(),
            self.trace,
        )

    # --- jobs and their bodies ------------------------------------------------------------------------

    def _draw_jobs(self) -> dict[str, Job]:
        return {f"job{n}": self._draw_job(f"job{n}") for n in range(self.chance.randint(3, 5))}

    def _draw_job(self, id: str) -> Job:
        chance = self.chance
        return Job(
            id=id,
            target="body",
            trigger=self._draw_trigger(),
            args={"longest": chance.choice([0.2, 1.0, 3.0, 8.0]), "fails": chance.choice([0.0, 0.0, 0.3])},
            overlap=Overlap.parse(chance.choice(["skip", "skip", "queue", "queue(3)", "allow(2)"])),
            misfire=chance.choice(["latest", "latest", "all", "skip"]),
            misfire_after=timedelta(seconds=chance.choice([1.5, 4.0])),
            retry=Retry(attempts=3, first=0.2, cap=1.0) if chance.random() < 0.4 else None,
            timeout=timedelta(seconds=2) if chance.random() < 0.2 else None,
            after_crash=chance.choice(["record", "rerun"]),
            execute_on=chance.choice(["any", "any", "leader"]),
        )

    def _draw_trigger(self) -> Trigger:
        chance = self.chance
        if chance.random() < 0.15:
            return cron("* * * * *", tz=chance.choice(["UTC", "Asia/Kolkata", "America/New_York"]))
        return every(seconds=chance.choice([1, 1, 2, 3, 5, 7]))

    async def _body(self, member: Member, fire: Fire) -> None:
        """Start, take a while, perhaps save and fail, then change the world once."""
        chance = random.Random(f"{self.seed}:{fire.key}:{fire.token}")
        record = self.state.fires[fire.key]
        record = replace(record, token=fire.token, replica=member.process.name)
        overlap = self.state.jobs_by_id[fire.job_id].job.overlap
        limit = overlap.limit if overlap.kind == "allow" else 1
        self.checker.started(record, member.process.name, self.world.now, limit)
        self._tell(member.process.name, "start", fire.key, fire.token)
        # When all is well bodies are quick, so that what is queued up can be worked off.
        longest = 0.02 if self.calm else fire.args["longest"]
        # Runs of one job that may overlap must not share a resource that compares tokens.
        resource = fire.job_id if limit == 1 else fire.key
        try:
            await asyncio.sleep(chance.uniform(0.0, longest))
            if chance.random() < 0.1:
                await fire.save({"half": True})
            if chance.random() < fire.args["fails"]:
                raise RuntimeError("drawn by the seed")
            await asyncio.sleep(chance.uniform(0.0, longest))
            self.checker.effect(resource, fire.key, fire.token)
        finally:
            self.checker.ended(fire.key, fire.token, self.world.now)

    # --- members --------------------------------------------------------------------------------------

    def _start_member(self) -> None:
        name = f"r{len(self.members)}"
        process = Process(self.world, name)
        chance = self.chance
        member = Member(
            process,
            wall_offset=chance.choice([0.0, chance.uniform(-600, 600)]),
            steady_offset=chance.uniform(0, 1e6),
            drift=chance.uniform(-0.001, 0.001),
        )
        registry = Registry()

        async def body(fire: Fire, longest: float, fails: float) -> None:
            await self._body(member, fire)

        registry.add(Task.of(body, "body"))
        member.replica = Replica(
            store=remote_store(self.network, process),
            clock=member,
            settings=SETTINGS,
            registry=registry,
            host=InlineHost(),
            identity=Identity(name, name, len(self.members)),
            jobs=list(self.jobs.values()),
            chance=random.Random(f"{self.seed}:{name}"),
        )
        member.replica.events.subscribe(
            lambda event: self._tell(name, event.kind, event.key or "", event.detail)
        )
        self.members[name] = member
        process.call_soon(member.replica.begin)

    def _alive(self) -> list[Member]:
        return [m for m in self.members.values() if not m.process.killed and not m.stopping]

    def _healthy(self) -> set[str]:
        """Members nobody has a reason to declare dead: they can reach the store, and could for a while."""
        if not self.calm and (self.network.weather.slow or self.network.weather.lose_request):
            return set()
        return {m.process.name for m in self._alive() if m.ill_until <= self.world.now}

    def _ill(self, member: Member, seconds: float) -> None:
        member.ill_until = max(member.ill_until, self.world.now + seconds + 2 * HEARTBEAT)

    # --- faults -----------------------------------------------------------------------------------------

    def _next_fault(self) -> None:
        delay = self.chance.expovariate(self.faults_per_second)
        if self.world.now + delay < self.fault_seconds:
            self.world.at(self.world.now + delay, self._fault)

    def _fault(self) -> None:
        kinds: list[Callable[[], None]] = [
            self._kill,
            self._pause_member,
            self._pause_member,
            self._bad_weather,
            self._bad_weather,
            self._cut_off,
            self._store_down,
            self._step_store_clock if self.store_clock_steps else self._store_down,
            self._step_replica_clock,
            self._stop_gracefully,
            self._change_trigger,
            self._pause_job,
            self._trigger_by_hand,
        ]
        self.faults += 1
        self.chance.choice(kinds)()
        self._next_fault()

    def _kill(self) -> None:
        alive = self._alive()
        if alive:
            self._kill_member(self.chance.choice(alive))

    def _kill_member(self, member: Member) -> None:
        member.process.kill()
        self.checker.killed(member.process.name, self.world.now)
        self._tell(member.process.name, "killed")
        self._start_later()

    def _start_later(self) -> None:
        self.world.at(self.world.now + self.chance.uniform(0.0, 8.0), self._start_member)

    def _pause_member(self) -> None:
        alive = self._alive()
        if alive:
            self._pause(self.chance.choice(alive), self.chance.choice([0.5, 2.0, 5.0, TTL, 2 * TTL, 3 * TTL]))

    def _pause(self, member: Member, duration: float) -> None:
        duration *= self.chance.uniform(0.7, 1.3)
        member.process.pause(duration)
        self._ill(member, duration)
        self._tell(member.process.name, "paused", f"{duration:.2f}s")

    def _bad_weather(self) -> None:
        share = self.chance.choice([0.05, 0.3])
        self.network.weather = Weather(share, share, slow=share, latest=self.chance.choice([0.5, 3.0, 12.0]))
        self._tell("network", "bad weather", self.network.weather)
        self.world.at(self.world.now + self.chance.uniform(1, 10), self._fair_weather)

    def _fair_weather(self) -> None:
        self.network.weather = Weather()
        for member in self._alive():
            self._ill(member, 0)
        self._tell("network", "fair weather")

    def _cut_off(self) -> None:
        alive = self._alive()
        if alive:
            member = self.chance.choice(alive)
            duration = self.chance.uniform(0.5, 3 * TTL)
            self.network.cut_off.add(member.process.name)
            self._ill(member, duration)
            self._tell(member.process.name, "cut off", f"{duration:.2f}s")
            self.world.at(
                self.world.now + duration, lambda: self.network.cut_off.discard(member.process.name)
            )

    def _store_down(self) -> None:
        duration = self.chance.choice([1.0, TTL, 2 * TTL]) * self.chance.uniform(0.7, 1.3)
        self.network.store_is_up = False
        self._tell("store", "down", f"{duration:.2f}s")
        self.world.at(self.world.now + duration, self._store_up)

    def _store_up(self) -> None:
        self.network.store_is_up = True
        self._tell("store", "up")

    def _step_store_clock(self) -> None:
        """Forward: every lease looks expired at once, and what was to come is due."""
        self.network.store_offset += self.chance.choice([8.0, 60.0])
        self.checker.clock_stepped = True
        self._tell("store", "clock stepped", f"{self.network.store_offset:.0f}s")

    def _step_replica_clock(self) -> None:
        alive = self._alive()
        if alive:
            member = self.chance.choice(alive)
            member.wall_offset += self.chance.choice([-3600, -60, 60, 3600])
            self._tell(member.process.name, "clock stepped", f"{member.wall_offset:.0f}s")

    def _stop_gracefully(self) -> None:
        alive = self._alive()
        if len(alive) > 1:
            member = self.chance.choice(alive)
            member.stopping = True
            self._tell(member.process.name, "stopping")
            member.process.call_soon(self._drain, member)
            self._start_later()

    def _drain(self, member: Member) -> None:
        async def drain() -> None:
            await member.replica.drain()
            if not member.replica.runs:
                self._tell(member.process.name, "stopped")
            member.process.kill()
            self.checker.killed(member.process.name, self.world.now)

        member.process.create_task(drain())

    def _change_trigger(self) -> None:
        id = self.chance.choice(sorted(self.jobs))
        self.jobs[id] = replace(self.jobs[id], trigger=self._draw_trigger())
        self._tell("admin", "define", id, self.jobs[id].trigger)
        self.network.apply(None, "put_jobs", ([PutJob(self.jobs[id])],))

    def _pause_job(self) -> None:
        id = self.chance.choice(sorted(self.jobs))
        self._tell("admin", "pause", id)
        self.network.apply(None, "change_job", (ChangeJob(id, "pause"),))
        self.world.at(
            self.world.now + self.chance.uniform(0.5, 10),
            lambda: self.network.apply(None, "change_job", (ChangeJob(id, "resume"),)),
        )

    def _trigger_by_hand(self) -> None:
        id = self.chance.choice(sorted(self.jobs))
        self.manual += 1
        self._tell("admin", "trigger", id)
        self.network.apply(None, "add_fire", (NewFire(manual_key(id, f"m{self.manual}"), id),))

    # --- recovery -----------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.calm = True
        self.network.weather = Weather()
        self.network.store_is_up = True
        self.network.cut_off.clear()
        for member in self.members.values():
            if not member.process.killed:
                member.process.paused_until = self.world.now
                self._ill(member, 0)
        self._tell("world", "healed")

    def _expect_punctuality(self) -> None:
        """L2: note which fires of the tail have no reason to be late, at the moment they fall due."""
        start = self.network.moment().wall
        for job_id in sorted(self.state.jobs_by_id):
            for due in self.checker._due(job_id, start + timedelta(seconds=TAIL - 1)):
                if due > start:
                    when = self.world.now + seconds(due - start)
                    self.world.at(when, lambda job_id=job_id, due=due: self._note_due(job_id, due))  # type: ignore[misc]

    def _note_due(self, job_id: str, due: datetime) -> None:
        record = self.state.jobs_by_id[job_id]
        free = all(member.replica.room() > 0 for member in self._alive())
        idle = not self.state._active.get(job_id) and not any(
            fire.due_at < due for fire in self.state._open.get(job_id, {}).values()
        )
        if free and idle and not record.paused_at(due):
            self.checker.expected_on_time[f"{job_id}@{due:%Y-%m-%dT%H:%M:%S.%fZ}"] = self.world.now

    def _check_leader(self) -> None:
        """L1, L3, L4: when all is well exactly one replica leads, and knows."""
        leaders = [m.process.name for m in self._alive() if m.replica.term() is not None]
        if leaders != [self.state.leader.holder]:
            self.checker.violation("L1", f"{leaders} lead, the store says {self.state.leader.holder}")

    # --- the record -------------------------------------------------------------------------------------

    def _committed(self, process: Process | None, name: str, args: tuple[Any, ...], reply: Any) -> None:
        who = process.name if process else "admin"
        line = told(name, args, reply)
        if line:
            self._tell(who, name, line)
        self.checker.committed(name, args, reply, self._healthy(), self.world.now)
        # The worst moment to be paused or killed is right after a commit, before its reply.
        member = self.members.get(who)
        if not self.calm and member is not None and name in ("claim_fires", "update_claims"):
            draw = self.chance.random()
            if draw < 0.01:
                self._pause(member, self.chance.choice([TTL / 2, TTL, 2 * TTL]))
            elif draw < 0.013 and member in self._alive():
                self._kill_member(member)

    def _tell(self, who: str, *what: object) -> None:
        line = f"{self.world.now:9.3f} {who:8} {' '.join(str(each) for each in what)}"
        self._digest.update(line.encode())
        if self.keep_trace:
            self.trace.append(line)


def simulate(seed: int, trace: bool = False) -> Result:
    logging.getLogger("fencepost").setLevel(logging.CRITICAL)
    return Simulation(seed, trace).run()


if __name__ == "__main__":
    import sys

    from fencepost.testing.sim_cli import main

    sys.exit(main())
