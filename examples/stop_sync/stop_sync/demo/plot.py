"""What happens: a run by hand loses its replica in mid-pipeline, a deploy interrupts another, a source changes."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.cli.progress import current, phases
from fencepost.clock import SystemClock
from fencepost.demo.director import TO_TAKE_OVER, Director
from fencepost.demo.processes import Process, Replicas
from fencepost.demo.watch import Seen
from fencepost.model import FireRecord, State
from stop_sync.pipeline import NAME

REPLICAS = 3
LONGEST = 3600.0
"""Seconds after which a demo without an end ends all the same."""
TO_START = 30.0
"""Seconds for a run that is due, or for a server, to be there."""
TO_REACH = 40.0
"""Seconds for a run to reach its next phase, or its end."""
TO_LEAVE = 15.0
IN_THE_MIDDLE_OF = "matching"
"""The phase in which harm is done: three or more are behind it, the import is ahead."""


class Company(Replicas):
    """The services are the replicas; beside them the source server and the web app."""

    command = ("stop_sync.demo.actor", "service")


@dataclass
class CutOff:
    """A run whose replica went, and what was behind it by then."""

    key: str
    how: str
    token: int
    behind: list[Mapping[str, Any]]


@dataclass
class Plot(Director):
    sources: str
    """URL of the source server."""
    web: str
    seconds: float | None
    cut_off: list[CutOff]
    _versions: int = 1

    # --- the three acts -------------------------------------------------------------------------------

    async def begin(self) -> None:
        self.stage.tell(f"Starting a source server, {REPLICAS} services and a web app.")
        await self.watch.look()
        self.processes.start(
            "sources", "stop_sync.demo.actor", "source_server", "--port", _port(self.sources)
        )
        started = [self.processes.join() for _ in range(REPLICAS)]
        self.processes.start("web", "stop_sync.demo.actor", "web", "--port", _port(self.web))
        await self._all_joined(started)
        await self._until(lambda: _answers(f"{self.web}/healthz"), TO_START, "the web app answers")
        self.stage.tell(f"All are there. Open {self.web} and watch the label at the top right.")

    async def play(self) -> None:
        self._begun = SystemClock().steady()
        by_hand = self.processes.start(
            "by-hand", "stop_sync.demo.actor", "job_runner", "--service", "--trigger", "manual"
        )
        by_hand.ended_by = "its end"
        self.stage.tell("A run by hand: python -m stop_sync.job_runner --service --trigger manual")
        await self._cut_off("kill -9")
        await self._until(lambda: not by_hand.alive, TO_REACH, "job_runner ends")
        whole = self.seconds or LONGEST
        while self._elapsed() + 2 * TO_START / 3 < whole:
            self._publish_a_new_version()
            await self._cut_off("SIGTERM")
        await self._countdown(whole)

    async def end(self, why: str) -> datetime:
        """Let a run end that has begun, then stop everybody."""
        until = (await self.watch.look()).now
        self.stage.tell(f"{why} A run that has begun may end; then all processes stop.", passing=True)
        if any(each.name.startswith("r") for each in self.processes.alive):
            await self._until(lambda: not self._active(), TO_REACH, "the last run ends")
        for process in self.processes.alive:
            process.terminate()
        await self._until(lambda: not self.processes.alive, TO_LEAVE, "all processes stop")
        return until

    # --- scenes ---------------------------------------------------------------------------------------

    async def _cut_off(self, how: str) -> None:
        """The leader runs the pipeline. It goes in the middle of it, and another goes on from there."""
        fire = await self._until(lambda: self._in(IN_THE_MIDDLE_OF), TO_START, f"a run is {IN_THE_MIDDLE_OF}")
        victim = await self._until(lambda: self._picture.leader, TO_TAKE_OVER, "somebody leads")
        process = self._process(victim)
        behind = [passed["name"] for passed in phases(fire) if passed["outcome"] == "done"]
        self.cut_off.append(CutOff(fire.key, how, fire.token, phases(fire)))
        end = process.kill if how == "kill -9" else process.terminate
        end()
        self.stage.fates[victim.name] = "killed" if how == "kill -9" else "has left"
        gone = SystemClock().steady()
        self.stage.tell(
            f"{how} for {victim.name}, which leads, in {IN_THE_MIDDLE_OF}. Behind it: {', '.join(behind)}."
        )
        heir = await self._next_leader(victim)
        seconds = SystemClock().steady() - gone
        if how == "kill -9":
            self.stage.takeovers.append(seconds)
        self.stage.tell(f"{heir.name} leads after {seconds:.2f} s, in term {heir.term}.")
        again = await self._until(lambda: self._again(fire), TO_REACH, "the run goes on")
        text = f"{heir.name} goes on with {current(again) or IN_THE_MIDDLE_OF}, token {again.token} after {fire.token}."
        self.stage.tell(f"{text} What is behind it is not repeated.")
        await self._replace(victim, process)
        await self._until(lambda: self._ended(fire.key), TO_REACH, "the run ends")
        self.stage.tell("The run has ended. The page shows new data, and nobody had to do anything.")

    async def _replace(self, gone: Seen, process: Process) -> None:
        await self._until(lambda: not process.alive, TO_LEAVE, f"{gone.name} is gone")
        started = self.processes.join()
        await self._all_joined([started])
        self.stage.replaced += 1
        self.stage.tell(f"{started.name} (pid {started.pid}) has joined in the place of {gone.name}.")

    def _publish_a_new_version(self) -> None:
        """Without that the next run would find register and timetable as they were, and do without them."""
        self._versions += 1
        body = json.dumps({"version": self._versions}).encode()
        request = urllib.request.Request(
            f"{self.sources}/switch/register", body, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=5).close()
        self.stage.tell(
            f"The register has been published anew, version {self._versions}: the next run fetches it."
        )

    # --- what is to be seen -----------------------------------------------------------------------------

    def _active(self) -> list[FireRecord]:
        return [fire for fire in self._picture.fires if fire.job_id == NAME and not fire.state.final]

    def _in(self, phase: str) -> FireRecord | None:
        found = (fire for fire in self._active() if fire.state is State.RUNNING and current(fire) == phase)
        return next(found, None)

    def _again(self, fire: FireRecord) -> FireRecord | None:
        """That run, once more at work."""
        same = (each for each in self._active() if each.key == fire.key and each.token > fire.token)
        return next((each for each in same if each.state is State.RUNNING and current(each)), None)

    def _ended(self, key: str) -> bool:
        return any(fire.key == key and fire.state.final for fire in self._picture.fires)


def _port(url: str) -> str:
    return url.rpartition(":")[2]


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=1).close()
    except OSError:
        return False
    return True
