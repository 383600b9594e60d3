"""What every plot needs: a stage to tell things on, real processes, and waiting for what must come."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from fencepost.clock import SystemClock
from fencepost.demo.processes import Process, Replicas
from fencepost.demo.watch import Picture, Seen, Watch
from fencepost.errors import FencepostError
from fencepost.store.base import Store

TO_JOIN = 20.0
TO_TAKE_OVER = 10.0
NOTICE = 3.0
"""Seconds before a fault at which it is announced."""
TICK = 0.02

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
class Director:
    store: Store
    processes: Replicas
    watch: Watch
    stage: Stage
    _begun: float = field(default=0.0, init=False)

    async def _next_leader(self, victim: Seen) -> Seen:
        def heir() -> Seen | None:
            leader = self._picture.leader
            return leader if leader and leader.name != victim.name and leader.term > victim.term else None

        return await self._until(heir, TO_TAKE_OVER, "another replica leads", look=True)

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
