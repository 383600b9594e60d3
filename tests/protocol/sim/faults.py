"""The faults, one method each, and what an administrator does meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from fencepost.model import Job, State, manual_key
from fencepost.store.base import ChangeJob, NewFire, PutJob
from fencepost.store.unreadable import RowUnreadable
from tests.protocol.network import Weather
from tests.protocol.sim.apart import with_policies
from tests.protocol.sim.draw import draw_change, draw_next_release
from tests.protocol.sim.members import Member

if TYPE_CHECKING:
    from tests.protocol.sim.simulation import Simulation

MOST_LOSSES = 4
"""Of data, in one seed: each stops all claims for a TTL."""
TWO_ADMINISTRATORS = 0.1
"""The share of seeds in which two people change definitions at once."""


class Faults:
    def __init__(self, simulation: Simulation, chance: random.Random) -> None:
        self.simulation = simulation
        self.chance = chance
        self.happened: Counter[str] = Counter()
        self._cut_until: dict[str, float] = {}
        self._outages = 0
        self._losses = 0
        self._losing = False
        """What will be left of the store is on disk already."""
        self._second = random.Random(f"{simulation.seed}:second administrator")
        self._are_two = self._second.random() < TWO_ADMINISTRATORS
        self._manual: list[str] = []
        self._steps = 0
        """Claims and settlements so far."""
        self._steps_awaited: list[tuple[int, Callable[[], None]]] = []

    def begin(self) -> None:
        mix = self.simulation.mix
        self._next(mix.faults, mix.faults_per_second)
        self._next(mix.chores, mix.chores_per_second)

    def _next(self, kinds: Sequence[str], per_second: float) -> None:
        def happen() -> None:
            kind = self.chance.choice(kinds)
            self.happened[kind] += 1
            (FAULTS | CHORES)[kind](self)
            self._next(kinds, per_second)

        delay = self.chance.expovariate(per_second)
        if self._now + delay < self.simulation.mix.seconds:
            self._later(delay, happen)

    # --- processes ----------------------------------------------------------------------------------------

    def kill(self) -> None:
        for member in self._some_alive(1):
            self.simulation.kill(member)
            self.replace()

    def pause(self) -> None:
        ttl = self.simulation.ttl
        for member in self._some_alive(1):
            self._pause(member, self.chance.choice([0.5, 2.0, 5.0, ttl, 2 * ttl, 3 * ttl]))

    def _pause(self, member: Member, duration: float) -> None:
        duration *= self.chance.uniform(0.7, 1.3)
        member.process.pause(duration)
        self.simulation.checker.books.paused[member.name] = member.process.paused_until
        self.simulation.fall_ill(member, duration)
        self._tell(member.name, "paused", f"{duration:.2f}s")

    def committed(self, member: Member) -> None:
        """Something was claimed or settled, and its reply is not seen yet."""
        self._steps += 1
        due = [callback for step, callback in self._steps_awaited if step <= self._steps]
        self._steps_awaited = [each for each in self._steps_awaited if each[0] > self._steps]
        for callback in due:
            callback()
        self._worst_moment(member)

    def _worst_moment(self, member: Member) -> None:
        draw, often = self.chance.random(), self.simulation.mix.worst_moments
        if draw < often:
            self.happened["pause after a commit"] += 1
            ttl = self.simulation.ttl
            self._pause(member, self.chance.choice([ttl / 2, ttl, 2 * ttl]))
        elif draw < 1.3 * often and member in self.simulation.alive():
            self.happened["kill after a commit"] += 1
            self.simulation.kill(member)
            self.replace()

    def sent(self, member: Member, name: str) -> float:
        """The longest way there is for what a run has to say: it arrives when its replica has long been declared dead,
        and the run may have been given to another."""
        if name != "update_claims" or self.chance.random() >= 3 * self.simulation.mix.worst_moments:
            return 0.0
        self.happened["last words held up"] += 1
        held_up = self.chance.uniform(1.5, 4.0) * self.simulation.ttl
        self._pause(member, held_up)
        return held_up

    def stop(self) -> None:
        if len(self.simulation.alive()) > 1:
            for member in self._some_alive(1):
                self.simulation.stop(member)
                self.replace()

    def replace(self) -> None:
        """Mostly by the latest release, sometimes by one from before."""
        releases = self.simulation.releases
        release = None if self.chance.random() < 0.7 else self.chance.choice(releases)
        self._later(self.chance.uniform(0.0, 8.0), partial(self.simulation.start, release))

    def deploy(self) -> None:
        """A new release, rolled out one replica after the other."""
        simulation = self.simulation
        number = len(simulation.releases) + 1
        now, revisions = simulation.network.moment().wall, simulation.mix.revisions
        release = draw_next_release(self.chance, number, simulation.releases[-1], revisions, now)
        release = simulation.engine.equip(with_policies(simulation.seed, release, simulation.focus))
        simulation.releases.append(release)
        self._tell(
            "admin", "deploy", number, "revision", release.revision, release.origin, *sorted(release.jobs)
        )
        delay = 0.0
        for member in simulation.alive():
            delay += self.chance.uniform(0.2, 3.0)
            self._later(delay, partial(self._roll, member))

    def _roll(self, member: Member) -> None:
        if member in self.simulation.alive():
            self.simulation.start()
            self.simulation.stop(member) if self.chance.random() < 0.8 else self.simulation.kill(member)

    # --- the network ----------------------------------------------------------------------------------------

    def bad_weather(self) -> None:
        share = self.chance.choice([0.05, 0.3])
        network = self.simulation.network
        network.weather = Weather(share, share, slow=share, latest=self.chance.choice([0.5, 3.0, 12.0]))
        self._tell("network", "bad weather", network.weather)
        self._later(self.chance.uniform(1, 10), self._fair_weather)

    def _fair_weather(self) -> None:
        self.simulation.network.weather = Weather()
        self.simulation.everybody_falls_ill(0.0)
        self._tell("network", "fair weather")

    def partition(self) -> None:
        """A replica or several are cut off, or only do not hear the answers."""
        network = self.simulation.network
        duration = self.chance.uniform(0.5, 3 * self.simulation.ttl)
        kind = self.chance.choice(["cut off", "cut off", "deaf"])
        for member in self._some_alive(self.chance.choice([1, 1, 2, 3])):
            (network.cut_off if kind == "cut off" else network.deaf).add(member.name)
            self._cut_until[member.name] = max(self._now + duration, self._cut_until.get(member.name, 0.0))
            self.simulation.fall_ill(member, duration)
            self._tell(member.name, kind, f"{duration:.2f}s")
        self._later(duration, self._reconnect)

    def _reconnect(self) -> None:
        over = {name for name, until in self._cut_until.items() if until <= self._now}
        self.simulation.network.cut_off -= over
        self.simulation.network.deaf -= over

    # --- the store ------------------------------------------------------------------------------------------

    def store_down(self) -> None:
        """It does not answer, and goes on as if nothing had been."""
        ttl = self.simulation.ttl
        self._outage(self.chance.choice([1.0, ttl, 2 * ttl]) * self.chance.uniform(0.7, 1.3))

    def _outage(self, duration: float, back: Callable[[], None] = lambda: None) -> None:
        network = self.simulation.network
        if self.simulation.calm:
            return
        network.store_is_up = False
        self._outages += 1
        self.simulation.everybody_falls_ill(duration)
        self._tell("store", "down", f"{duration:.2f}s")

        def up() -> None:
            back()
            self._outages -= 1
            network.store_is_up = self._outages == 0
            self._tell("store", "up")

        self._later(duration, up)

    def slow_store(self) -> None:
        network = self.simulation.network
        network.service_time = self.chance.choice([0.01, 0.05, 0.2, 0.6])
        duration = self.chance.uniform(1, 10)
        self.simulation.everybody_falls_ill(duration)
        self._tell("store", "slow", network.service_time, f"{duration:.2f}s")
        self._later(duration, self._fast_store)

    def _fast_store(self) -> None:
        self.simulation.network.service_time = 0.0
        self.simulation.everybody_falls_ill(self.simulation.network.backlog)

    def restart(self) -> None:
        """It comes up with all it had acknowledged. One that might not have cannot know that."""
        duration = self.chance.uniform(0.05, self.simulation.ttl)

        def go_down() -> None:
            if not self._outages:
                self._outage(duration, self._come_up)

        if self.chance.random() < 0.5:
            go_down()
        else:
            self._after_steps(1, go_down)

    def _come_up(self) -> None:
        mix = self.simulation.mix
        self.simulation.network.restart_store()
        if not mix.keeps_writes:
            self._ask("restarted", f"start {self._now:.3f}")
        self._tell("store", "restarted")
        if "lose data" in mix.faults and self.chance.random() < 0.3 and self._may_lose():
            # It is killed again while there is doubt, right after what is settled first.
            self._write_to_disk(partial(self._after_steps, 1))

    def lose_data(self) -> None:
        """A server is killed, and comes up as it was a while ago; or, which is worse, as it was a few steps ago, when
        something had just been claimed, or waited to be run again."""
        if self._outages or not self._may_lose():
            return
        draw = self.chance.random()
        if draw < 0.4:
            self._write_to_disk(self._lose_seconds)
        elif draw < 0.7:
            self._after_steps(1, partial(self._write_to_disk, self._lose_steps))
        else:
            self._when_something_waits(partial(self._write_to_disk, self._lose_steps))

    def _may_lose(self) -> bool:
        may = not self._losing and self._losses < MOST_LOSSES
        if may:
            self._losing = True
            self._losses += 1
        return may

    def _write_to_disk(self, lose: Callable[[Callable[[], None]], None]) -> None:
        simulation = self.simulation
        rows, books = simulation.store.snapshot(), simulation.checker.snapshot()
        self._tell("store", "writes to disk")

        def come_up() -> None:
            simulation.store.restore(rows)
            simulation.checker.restored(books)
            simulation.rows.data_was_lost()
            self._come_up()
            if not simulation.calm and self.chance.random() < 0.3:
                self.stop()  # perhaps one who was told of what is lost, before it could say so

        def crash() -> None:
            self._losing = False
            if not self._outages:
                self._tell("store", "loses what it did since")
                self._outage(self.chance.choice([0.1, 1.0, 4.0]), come_up)

        lose(crash)

    def _lose_seconds(self, crash: Callable[[], None]) -> None:
        age = self.chance.choice([0.02, 0.1, 0.3, 1.0, 4.0, 8.0]) * self.chance.uniform(0.5, 1.5)
        if self.chance.random() < 0.3:
            # A restart that will be forgotten.
            self._later(age / 2, partial(self._outage, age / 8, self._come_up))
        self._later(age, crash)

    def _lose_steps(self, crash: Callable[[], None]) -> None:
        self._after_steps(self.chance.choice([1, 1, 2, 3, 6]), crash)

    def _after_steps(self, count: int, callback: Callable[[], None]) -> None:
        """When so many claims, or settlements, have been made."""
        self._steps_awaited.append((self._steps + count, callback))

    def _when_something_waits(self, callback: Callable[[], None], patience: int = 30) -> None:
        """To be run again; or after so many steps without."""
        fires = self.simulation.store.fires.rows.values()
        if not patience or any(fire.state is State.WAITING for fire in fires):
            callback()
        else:
            self._after_steps(1, partial(self._when_something_waits, callback, patience - 1))

    def store_clock(self) -> None:
        """Forward: every lease looks expired at once, and what was to come is due. Back: nothing expires, and what
        was decided seems to lie ahead."""
        self._step(self.chance.choice([8.0, 60.0, -4.0, -8.0, self.chance.choice([-60.0, 3700.0])]))

    def sleeping_leader(self) -> None:
        """It sleeps for about as long as it goes on trusting itself, and the store's clock makes its lease look
        expired: on waking it may believe to lead beside its successor."""
        for member in self.simulation.alive():
            if member.name == self.simulation.store.leader.holder:
                self._pause(member, 0.6 * self.simulation.ttl)
                self._step(8.0)

    def _step(self, step: float) -> None:
        network = self.simulation.network
        network.store_offset += step
        self.simulation.checker.books.stepped_back |= step < 0
        if self.simulation.mix.steady_steps:
            network.steady_offset += step
        self._tell("store", "clock stepped", f"{step:+.0f}s")

    def replica_clock(self) -> None:
        for member in self._some_alive(1):
            member.wall_offset += self.chance.choice([-3600, -60, 60, 3600])
            self._tell(member.name, "clock stepped", f"{member.wall_offset:.0f}s")

    # --- what an administrator does -------------------------------------------------------------------------

    def definition(self) -> None:
        for job in self._some_job():
            changed = draw_change(self.chance, job, self.simulation.network.moment().wall)
            self._tell("admin", "define", job.id, changed.trigger)
            seen = job.fingerprint if self._are_two else None
            self._ask("put_jobs", [PutJob(changed, source="api", expected=seen)])
            if self._are_two:  # both have read the same definition: one of them comes too late
                other = draw_change(self._second, job, self.simulation.network.moment().wall)
                self._ask("put_jobs", [PutJob(other, by="second", source="api", expected=seen)])

    def pause_job(self) -> None:
        for job in self._some_job():
            duration = self.chance.uniform(0.5, 10)
            self._tell("admin", "pause", job.id, f"{duration:.2f}s")
            if self.chance.random() < 0.3:
                until = self.simulation.network.moment().wall + timedelta(seconds=duration)
                self._ask("change_job", ChangeJob(job.id, "pause", until=until))
            else:
                self._ask("change_job", ChangeJob(job.id, "pause"))
                self._later(duration, partial(self._ask, "change_job", ChangeJob(job.id, "resume")))

    def trigger(self) -> None:
        """By hand; now and then under a name that was used before."""
        for job in self._some_job():
            again = bool(self._manual) and self.chance.random() < 0.3
            key = self.chance.choice(self._manual) if again else manual_key(job.id, f"m{len(self._manual)}")
            self._manual.append(key)
            self._tell("admin", "trigger", key)
            self._ask("add_fire", NewFire(key, key.partition("!")[0]))

    def slots(self) -> None:
        """More at once than there are slots."""
        for _ in range(3 * self.simulation.mix.slots):
            self.trigger()

    def cancel(self) -> None:
        """Rather something that runs, or waits to be run again."""
        now = self.simulation.network.moment().wall
        fires = [
            f for f in self.simulation.store.fires.rows.values() if not f.state.final and f.due_at <= now
        ]
        active = [fire for fire in fires if fire.state in (State.RUNNING, State.WAITING)]
        if fires:
            key = self.chance.choice(sorted(fire.key for fire in active or fires))
            self._tell("admin", "cancel", key)
            self._ask("cancel_fire", key)

    def declare_dead(self) -> None:
        """Somebody says that the replica of a run is dead, a while after looking: it may be, or not, or the run may be
        another one by now."""
        runs = [fire for fire in self.simulation.store.fires.rows.values() if fire.state is State.RUNNING]
        if runs:
            fire = self.chance.choice(sorted(runs, key=lambda fire: fire.key))
            self._tell("admin", "declares dead", fire.replica, fire.key, fire.token)
            declare = partial(self._ask, "cancel_fire", fire.key, "ann", fire.token)
            self._later(self.chance.choice([0.0, 0.5, 3.0, 8.0]), declare)

    def remove_job(self) -> None:
        """And perhaps, a while later, somebody thinks better of it."""
        for job in self._some_job():
            self._tell("admin", "remove", job.id)
            self._ask("change_job", ChangeJob(job.id, "remove"))
            if self.chance.random() < 0.7:
                self._later(self.chance.uniform(0.0, 10.0), partial(self._ask, "put_jobs", [PutJob(job)]))

    def remove_abandoned(self) -> None:
        """As a replica does whose job file has lost the job: nothing happens while others declare it."""
        for job in self._some_job():
            self._tell("admin", "remove if abandoned", job.id)
            self._ask("change_job", ChangeJob(job.id, "remove", if_undeclared=True))

    # --- helpers ----------------------------------------------------------------------------------------------

    @property
    def _now(self) -> float:
        return self.simulation.world.now

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Also when all is well by then: what was begun comes to its end."""
        self.simulation.world.at(self._now + seconds, callback)

    def _ask(self, name: str, *args: object) -> None:
        try:
            self.simulation.network.apply(None, name, args)
        except RowUnreadable:
            self._later(1.0, partial(self._ask, name, *args))  # once it can be read

    def _tell(self, who: str, *what: object) -> None:
        self.simulation.tell(who, *what)

    def _some_alive(self, count: int) -> Sequence[Member]:
        """Any; but if it is one, then rather the leader: it has more to lose."""
        alive = self.simulation.alive()
        leader = [member for member in alive if member.name == self.simulation.store.leader.holder]
        if count == 1 and leader and self.chance.random() < 0.4:
            return leader
        return self.chance.sample(alive, min(count, len(alive)))

    def _some_job(self) -> Sequence[Job]:
        ids, jobs = self.simulation.jobs(), self.simulation.store.jobs.rows
        return [jobs[self.chance.choice(ids)].job] if ids else []


FAULTS: dict[str, Callable[[Faults], None]] = {
    "kill": Faults.kill,
    "pause": Faults.pause,
    "stop": Faults.stop,
    "deploy": Faults.deploy,
    "bad weather": Faults.bad_weather,
    "partition": Faults.partition,
    "store down": Faults.store_down,
    "slow store": Faults.slow_store,
    "restart": Faults.restart,
    "lose data": Faults.lose_data,
    "store clock": Faults.store_clock,
    "sleeping leader": Faults.sleeping_leader,
    "replica clock": Faults.replica_clock,
    "slots": Faults.slots,
}
CHORES: dict[str, Callable[[Faults], None]] = {
    "definition": Faults.definition,
    "pause job": Faults.pause_job,
    "trigger": Faults.trigger,
    "cancel": Faults.cancel,
    "declare dead": Faults.declare_dead,
    "remove job": Faults.remove_job,
    "remove abandoned": Faults.remove_abandoned,
}
