"""What happens when: two thirds of the way the cluster has lost its leader and said good-bye to a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from fencepost.clock import SystemClock
from fencepost.demo.director import TICK, TO_TAKE_OVER, DemoFailed, Director
from fencepost.demo.watch import Picture, Seen
from fencepost.demo.words import PAUSED
from fencepost.model import FireRecord, State
from fencepost.store.base import ChangeJob, FireQuery

CYCLE = 30.0
"""Seconds in which everything happens once; a longer demo plays it again."""
LONGEST = 3600.0
"""Seconds after which a demo without an end ends all the same."""
TO_SETTLE = 15.0
TO_LEAVE = 15.0
"""A body takes up to 3 seconds, and the application allows 10 for draining."""
DUE_AT_ONCE = 1000
LENGTHY = {"backup": 10}
"""Jobs whose end is worth waiting for."""


@dataclass
class Plot(Director):
    replicas: int
    seconds: float | None
    _patience: float = 0.0
    """Seconds to wait for a replica to run something before harm is done to it."""

    # --- the three acts -------------------------------------------------------------------------------

    async def begin(self) -> None:
        self.stage.tell(f"Starting {self.replicas} replicas, each a process of its own.")
        await self.watch.look()
        started = [self.processes.join() for _ in range(self.replicas)]
        await self._all_joined(started)
        leader = await self._until(lambda: self._picture.leader, TO_TAKE_OVER, "a replica leads")
        await self.store.change_job(
            ChangeJob(PAUSED, "pause", "to show what a pause looks like", by="the demo")
        )
        self.stage.tell(f"All have joined. {leader.name} (pid {leader.pid}) leads, in term {leader.term}.")

    async def play(self) -> None:
        whole = self.seconds or LONGEST
        cycles = max(1, round(whole / CYCLE))
        length = whole / cycles
        self._patience = min(2.0, length / 8)
        self._begun = SystemClock().steady()
        for cycle in range(cycles):
            start = cycle * length
            await self._countdown(start + length / 3, "the leader, {leader}, is killed with kill -9")
            await self._kill_the_leader(length)
            await self._countdown(start + length * 2 / 3, "a replica that does not lead gets SIGTERM")
            await self._send_a_worker_home()
            await self._countdown(start + length)

    async def end(self, why: str) -> datetime:
        """Let what is due by now end, stop everybody; the moment up to which all must be accounted for."""
        until = (await self.watch.look()).now
        self.stage.tell(f"{why} What is due gets its outcome; then all replicas stop.", passing=True)
        if self.processes.alive:
            await self._settled(until, why)
        leaving = self.processes.alive
        for process in leaving:
            process.terminate()
        await self._until(lambda: not self.processes.alive, TO_LEAVE, "all replicas stop")
        return until

    # --- scenes ---------------------------------------------------------------------------------------

    async def _kill_the_leader(self, length: float) -> None:
        victim = await self._busy(lambda picture: picture.leader)
        busy = ", ".join(fire.job_id for fire in victim.running)
        process = self._process(victim)
        process.kill()
        self.stage.fates[victim.name] = "killed"
        killed = SystemClock().steady()
        middle = f"in the middle of {busy}" if busy else "while it ran nothing"
        self.stage.tell(f"kill -9: {victim.name}, the leader of term {victim.term}, is dead, {middle}.")
        heir = await self._next_leader(victim)
        self.stage.takeovers.append(SystemClock().steady() - killed)
        seconds = self.stage.takeovers[-1]
        self.stage.tell(f"{heir.name} took over after {seconds:.2f} s and leads in term {heir.term}.")
        await self._pause(min(1.5, length / 10))
        await self._replace(victim)

    async def _send_a_worker_home(self) -> None:
        worker = await self._busy(_worker)
        process = self._process(worker)
        process.terminate()
        self.stage.fates[worker.name] = "has left"
        begun = SystemClock().steady()
        ends = f" and lets {', '.join(fire.job_id for fire in worker.running)} end" if worker.running else ""
        self.stage.tell(f"SIGTERM: {worker.name} claims nothing more{ends}, as in a deploy.")
        await self._pause(0.5)
        await self._replace(worker)
        await self._until(lambda: not process.alive, TO_LEAVE, f"{worker.name} leaves")
        seconds = SystemClock().steady() - begun
        self.stage.tell(
            f"{worker.name} has left after {seconds:.1f} s, exit code {process.code}; nothing was cut off."
        )

    async def _replace(self, gone: Seen) -> None:
        process = self.processes.join()
        self.stage.tell(f"Starting {process.name} (pid {process.pid}) in the place of {gone.name}.")
        await self._all_joined([process])
        self.stage.replaced += 1
        self.stage.tell(f"{process.name} has joined and takes its share.")

    async def _busy(self, who: Callable[[Picture], Seen | None]) -> Seen:
        """That replica; if possible while it runs something, since that is what one fears."""
        begun = SystemClock().steady()
        while True:
            found, waited = who(await self.watch.look()), SystemClock().steady() - begun
            if found and (found.running or waited > self._patience):
                return found
            if waited > TO_TAKE_OVER:
                raise DemoFailed("there is no leader, or nobody else")
            await self._pause(TICK)

    async def _settled(self, until: datetime, why: str) -> None:
        """Until all that is due by then is final."""
        query = FireQuery(
            states=tuple(state for state in State if not state.final), until=until, limit=DUE_AT_ONCE
        )
        deadline = SystemClock().steady() + TO_SETTLE
        while open_fires := await self.store.find_fires(query):
            if SystemClock().steady() > deadline:
                break  # the reckoning will name them
            self.stage.title = f"{why} Waiting for {_jobs(open_fires)} to end; then all replicas stop."
            await self._pause(0.1)


def _jobs(fires: tuple[FireRecord, ...]) -> str:
    return ", ".join(sorted({fire.job_id for fire in fires}))


def _worker(picture: Picture) -> Seen | None:
    """One that does not lead; rather one that runs something, the longer the better."""
    found = [each for each in picture.replicas if each.state == "alive"]
    return max(found, key=lambda each: sum(LENGTHY.get(run.job_id, 1) for run in each.running), default=None)
