"""What happens when: two thirds of the way the cluster has lost its leader and said good-bye to a worker."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from fencepost.clock import SystemClock
from fencepost.demo.processes import Process, Processes
from fencepost.demo.watch import PAUSED, Picture, Seen, Watch
from fencepost.errors import FencepostError
from fencepost.model import FireRecord, State
from fencepost.store.base import ChangeJob, FireQuery, Store

CYCLE = 30.0
"""Seconds in which everything happens once; a longer demo plays it again."""
LONGEST = 3600.0
"""Seconds after which a demo without an end ends all the same."""
TO_JOIN = 20.0
TO_TAKE_OVER = 10.0
TO_SETTLE = 15.0
TO_LEAVE = 15.0
"""A body takes up to 3 seconds, and the application allows 10 for draining."""
NOTICE = 3.0
"""Seconds before a fault at which it is announced."""
TICK = 0.02
DUE_AT_ONCE = 1000
LENGTHY = {"backup": 10}
"""Jobs whose end is worth waiting for."""


T = TypeVar("T")


class DemoFailed(FencepostError):
    """Something that must not happen in a demo, or took too long."""


@dataclass
class Stage:
    """What the plot tells the views."""

    title: str = "Starting …"
    """What is happening now."""
    told: deque[tuple[datetime, str]] = field(default_factory=lambda: deque(maxlen=100))
    """What has happened, for the views; the oldest is forgotten."""
    number_told: int = 0
    takeovers: list[float] = field(default_factory=list)
    """Seconds from each kill -9 to the next leader."""
    elapsed: float = 0.0
    replaced: int = 0

    fates: dict[str, str] = field(default_factory=dict)
    """By replica: what we did to it."""
    _passing: bool = False

    def tell(self, text: str, *, passing: bool = False) -> None:
        """`passing`: an announcement, of no interest once it has come true."""
        if self._passing and self.told:
            self.told.pop()
        self._passing = passing
        self.title = text
        self.told.append((SystemClock().wall(), text))
        self.number_told += 1


@dataclass
class Plot:
    store: Store
    processes: Processes
    watch: Watch
    stage: Stage
    replicas: int
    seconds: float | None
    _begun: float = 0.0
    _patience: float = 0.0
    """Seconds to wait for a replica to run something before harm is done to it."""

    # --- the three acts -------------------------------------------------------------------------------

    async def begin(self) -> None:
        self.stage.tell(f"Starting {self.replicas} replicas, each a process of its own.")
        await self.watch.look()
        started = [self.processes.start() for _ in range(self.replicas)]
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
        process = self.processes.start()
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

    async def _next_leader(self, victim: Seen) -> Seen:
        def heir() -> Seen | None:
            leader = self._picture.leader
            return leader if leader and leader.name != victim.name and leader.term > victim.term else None

        return await self._until(heir, TO_TAKE_OVER, "another replica leads", look=True)

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

    # --- waiting --------------------------------------------------------------------------------------

    @property
    def _picture(self) -> Picture:
        assert self.watch.picture is not None
        return self.watch.picture

    def _process(self, seen: Seen) -> Process:
        process = self.processes.of(seen.pid)
        if process is None:
            raise DemoFailed(f"process {seen.pid} is in the store and not one of ours")
        return process

    async def _countdown(self, at: float, what: str = "") -> None:
        announced = not what
        while (left := at - self._elapsed()) > 0:
            if what and left <= NOTICE and (leader := self._picture.leader):
                text = f"In {math.ceil(left)} s {what.format(leader=leader.name)}."
                if not announced:
                    self.stage.tell(text, passing=True)
                    announced = True
                self.stage.title = text
            await self._pause(min(0.1, left))

    async def _all_joined(self, started: list[Process]) -> None:
        pids = {process.pid for process in started}

        def all_there() -> bool:
            return pids <= {each.pid for each in self._picture.replicas if each.state in ("alive", "leads")}

        await self._until(all_there, TO_JOIN, "all replicas join")

    async def _until(
        self, condition: Callable[[], T | None], seconds: float, what: str, *, look: bool = False
    ) -> T:
        """`look`: at the store each time, rather than when the view does."""
        deadline = SystemClock().steady() + seconds
        while not (found := condition()):
            if SystemClock().steady() > deadline:
                raise DemoFailed(f"not within {seconds:g} s: {what}")
            await self._pause(TICK)
            if look:
                await self.watch.look()
        return found

    async def _pause(self, seconds: float) -> None:
        """And notice a replica that ended by itself."""
        await asyncio.sleep(seconds)
        self.stage.elapsed = self._elapsed()
        if failed := self.processes.failed:
            raise DemoFailed(f"{failed[0].name} ended with code {failed[0].code}:\n{failed[0].last_words()}")

    def _elapsed(self) -> float:
        return SystemClock().steady() - self._begun if self._begun else 0.0


def _jobs(fires: tuple[FireRecord, ...]) -> str:
    return ", ".join(sorted({fire.job_id for fire in fires}))


def _worker(picture: Picture) -> Seen | None:
    """One that does not lead; rather one that runs something, the longer the better."""
    found = [each for each in picture.replicas if each.state == "alive"]
    return max(found, key=lambda each: sum(LENGTHY.get(run.job_id, 1) for run in each.running), default=None)
