"""The stage of a demo: real replicas on one SQLite file, shown live while they lose their leader, then the audit.

`fencepost demo` and `make demo` each tell a story on it. They show what `fencepost status` and `fires` would.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Group
from rich.live import Live
from rich.rule import Rule

from fencepost.cli.audit import tell
from fencepost.cli.fires import fire_table
from fencepost.cli.output import console, emit, note
from fencepost.cli.progress import Bars, current, phases, stderr_console
from fencepost.cli.status import replica_table
from fencepost.clock import SystemClock
from fencepost.errors import FencepostError
from fencepost.insight.audit import audit
from fencepost.insight.audit.shapes import report_shape
from fencepost.insight.views.overview import overview
from fencepost.model import FireRecord, State
from fencepost.store.base import FireQuery
from fencepost.store.urls import store_from_url

PATIENCE = 90.0
"""Seconds for anything that must come: a replica that joins, a run that goes on."""
NEWEST = 100
"""Fires that are looked at: more than fall due in that time."""
LONGEST = 3600.0
"""Seconds after which a demo without an end ends all the same."""

DASHBOARD = 8787

T = TypeVar("T")
clock = SystemClock()


@dataclass
class Stage:
    intro: str
    story: Callable[[Stage], Awaitable[None]]
    replica: Sequence[str]
    """`python -m …` starts one, in the folder of the demo."""
    environment: Mapping[str, str]
    seconds: float | None
    keep: bool
    as_json: bool = False
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    exit_codes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of the processes that may end."""
    cut_off: list[FireRecord] = field(default_factory=list)
    """Runs whose replica was killed or stopped, as they were."""
    takeovers: list[float] = field(default_factory=list)
    """Seconds from each kill -9 to the next leader."""
    bars: dict[str, Bars] = field(default_factory=dict)
    """The phases of pipelines, by fire."""
    holding: Path | None = None
    """The file of `hold`."""
    signals: list[int] = field(default_factory=list)
    """Received by the demo: the first ends the story, a second one also the graceful end."""

    # --- from start to exit code ------------------------------------------------------------------------

    def run(self) -> int:
        self.console = stderr_console() if self.as_json else console()
        self.folder, code = Path(tempfile.mkdtemp(prefix="fencepost-")), 0
        self.url = f"sqlite:///{self.folder}/fencepost.db"
        try:
            if sys.platform == "win32":
                raise FencepostError("its processes share a SQLite file, which needs Linux or macOS")
            code = asyncio.run(self._run())
        except Exception as error:
            code = 1
            if not isinstance(error, FencepostError):
                raise
            note(f"The demo failed: {error}")
        finally:
            if self.keep or code == 1:
                note(f"The database and the logs are in {self.folder}")
            else:
                shutil.rmtree(self.folder, ignore_errors=True)
        return code

    async def _run(self) -> int:
        self.store, self.begun = store_from_url(self.url), clock.steady()
        await self.store.open()
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupt, number, task)
        try:
            await self._poll()
            self._print(f"{self.intro}\nTimes are in UTC. Ctrl-C ends it.\n")
            with Live(get_renderable=self._frame, console=self.console, transient=True):
                try:
                    await self.story(self)
                except asyncio.CancelledError:
                    if not self.signals:  # then something else cancelled it, and the story was not shown
                        raise
                until = await self._end()
            right = await self._account(until)
        except asyncio.CancelledError:
            note("Interrupted: all processes were killed.")
            return 130
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
            await self.store.close()
        return 1 if not right else 130 if signal.SIGINT in self.signals[:1] else 0

    def _interrupt(self, number: int, task: Any) -> None:
        self.signals.append(number)
        task.cancel()

    async def _end(self) -> datetime:
        """Let what is due by now end, then stop all; the moment up to which all must be accounted for."""
        until = self.now
        self.release()
        why = "Stopping" if self.signals else "The time is up"
        self.say(f"{why}: what is due may end, then all processes stop.")
        if self._alive():
            await self.until(lambda: not self._open(until), "what is due ends")
        for name in self._alive():
            self.end(name, signal.SIGTERM)
        await self.until(lambda: not self._alive(), "all processes stop")
        return until

    async def _account(self, until: datetime) -> bool:
        report = await audit(self.store, until=until)
        problems = await self._problems()
        right = report.clean and not problems
        for problem in problems:
            self.say(f"PROBLEM: {problem}")
        if self.as_json:
            found = {"ok": right, "problems": problems, "takeover_seconds": self.takeovers, "store": self.url}
            emit({**found, **report_shape(report)})
        else:
            self._print(f"\nfencepost audit --store {self.url}")
            tell(report, self.url)
        return right

    async def _problems(self) -> list[str]:
        """What is wrong with runs that were cut off, and with starts that jobs have noted; the audit finds the rest."""
        fires = await self.store.find_fires(FireQuery(until=self.now, limit=10_000))
        now, starts = {fire.key: fire for fire in fires}, self.folder / "starts.log"
        found = wrongly_started(starts.read_text().splitlines(), fires) if starts.exists() else []
        for fire in self.cut_off:
            if now[fire.key].state is not State.SUCCEEDED:
                found.append(f"{fire.key}: cut off, then {now[fire.key].state}")
            if phases(now[fire.key])[: len(phases(fire))] != phases(fire):
                found.append(f"{fire.key}: cut off, then phases repeated that were done")
        return found

    # --- what a story is made of ------------------------------------------------------------------------

    def say(self, text: str) -> None:
        self._print(f"{clock.wall():%H:%M:%S} {text}")

    def _print(self, text: str) -> None:
        """Programs that read the output get whole lines, whatever COLUMNS says."""
        self.console.print(text, soft_wrap=not self.console.is_terminal)

    def elapsed(self) -> float:
        return clock.steady() - self.begun

    async def at(self, seconds: float) -> None:
        while self.elapsed() < seconds:
            await self._tick()

    async def until(self, found: Callable[[], T | None], what: str, tick: float = 0.1) -> T:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not (value := found()):
                    await self._tick(tick)
                return value
        raise FencepostError(f"not within {PATIENCE:g} s: {what}")

    def start(self, name: str, *words: str) -> None:
        """`python -m …`, with its output in a log of its own."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith("FENCEPOST_")}
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "fencepost.cli.demo.child", str(os.getpid()), *words],
                cwd=self.folder,  # no fencepost.toml of the user's reaches it
                env={**clean, **self.environment, "POD_NAME": name},  # which names a replica
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours to handle
            )

    def start_dashboard(self) -> int | None:
        """A service that shows the store. Its port; None: it is not installed."""
        if not all(map(find_spec, ("jinja2", "starlette", "uvicorn", "pydantic", "prometheus_client"))):
            self.say("The dashboard needs `pip install 'fencepost[web]'`.")
            return None
        port = free_port(DASHBOARD)
        alone = ("--replica", "off", "--store", self.url)
        self.start("dashboard", "fencepost", "serve", *alone, "--port", str(port))
        return port

    async def show_dashboard(self, port: int | None) -> None:
        """Say where it is, once it listens."""
        if port is not None:
            await self.until(lambda: is_listening(port), "the dashboard listens")
            self.say(f"The dashboard: http://127.0.0.1:{port}/")

    def end(self, name: str, by: signal.Signals) -> None:
        self.exit_codes[name] = (-by,) if by == signal.SIGKILL else (0,)
        self.processes[name].send_signal(by)

    async def join(self, count: int = 1) -> str:
        """Start replicas, named r1, r2, …, and wait until they take part. The name of the last one."""
        before = sum(name.startswith("r") for name in self.processes)
        names = [f"r{before + number + 1}" for number in range(count)]
        for name in names:
            self.start(name, *self.replica)
        await self.until(lambda: {*names} <= {each["host"] for each in self.status["replicas"]}, "all join")
        return names[-1]

    def hold(self, name: str) -> None:
        """A file that keeps runs where they are to be cut off, until another replica has the run: a slow machine
        would pass through a short phase between two looks."""
        self.holding = self.folder / name
        self.holding.touch()

    def release(self) -> None:
        if self.holding:
            self.holding.unlink(missing_ok=True)

    async def lose_leader(self, by: signal.Signals, job_id: str, phase: str | None = None) -> None:
        """End the leader in the middle of a run of this job. See who leads then, what becomes of the run, and a new
        replica join."""
        fire = await self.until(lambda: self._on_leader(job_id, phase), f"the leader runs {job_id}")
        name, term, sent = self.leader["host"], self.leader["term"], clock.steady()
        self.end(name, by)
        self.cut_off.append(fire)
        how = "kill -9" if by == signal.SIGKILL else "SIGTERM"
        done = ", ".join(passed["name"] for passed in phases(fire))
        self.say(f"{how} for {name}, which leads, in {phase or job_id}{done and f'. Done: {done}'}.")
        await self.until(lambda: self.leader["term"] > term, "another replica leads", tick=0.02)
        took = clock.steady() - sent
        self.takeovers += [round(took, 3)] if how == "kill -9" else []
        self.say(f"{self.leader['host']} leads after {took:.2f} s, in term {self.leader['term']}.")
        token = await self.until(lambda: self._token_after(fire), f"{fire.key} goes on")
        self.release()
        if token > fire.token:
            gap = f"{clock.steady() - sent:.2f} s after {how}, with token {token} after {fire.token}"
            self.say(f"{self.leader['host']} goes on with {phase or job_id} {gap}.")
        await self.until(lambda: name not in self._alive(), f"{name} ends")
        self.say(f"{await self.join()} has joined in the place of {name}.")
        await self.until(lambda: self.fires[fire.key].state.final, f"{fire.key} ends")
        self.say(f"The run has {self.fires[fire.key].state}. No person had to do anything.")

    # --- what is seen -----------------------------------------------------------------------------------

    async def _tick(self, seconds: float = 0.1) -> None:
        await asyncio.sleep(seconds)
        await self._poll()
        for name, process in self.processes.items():
            if process.poll() not in (None, *self.exit_codes.get(name, ())):
                log = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-12:]
                raise FencepostError("\n".join([f"{name} ended with code {process.returncode}:", *log]))

    async def _poll(self) -> None:
        self.status, self.now = await overview(self.store, self.url)
        self.leader = self.status["leader"] or {"replica": None, "host": "no replica", "term": 0}
        newest = await self.store.find_fires(FireQuery(until=self.now, limit=NEWEST))
        self.fires = {fire.key: fire for fire in newest}
        for fire in reversed(newest):
            if fire.progress:
                self.bars.setdefault(fire.key, Bars(self.console)).show(fire)

    def _alive(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.poll() is None]

    def _open(self, until: datetime) -> list[FireRecord]:
        return [fire for fire in self.fires.values() if fire.due_at < until and not fire.state.final]

    def _on_leader(self, job_id: str, phase: str | None) -> FireRecord | None:
        runs = [fire for fire in self.fires.values() if fire.replica == self.leader["replica"]]
        found = (run for run in runs if run.job_id == job_id and run.state is State.RUNNING)
        return next((run for run in found if phase in (None, current(run))), None)

    def _token_after(self, before: FireRecord) -> int | None:
        """Of the run, once it goes on elsewhere or has ended."""
        state, token = self.fires[before.key].state, self.fires[before.key].token
        return token if state.final or (state is State.RUNNING and token > before.token) else None

    def _frame(self) -> Group:
        whole = f" of {self.seconds:g}" if self.seconds else ""
        title = Rule(f"{self.elapsed():.0f}{whole} s · {self.leader['host']} leads", align="left")
        replicas = replica_table(self.status["replicas"], self.now)
        fires = fire_table(list(self.fires.values())[:8], self.now)
        return Group(title, replicas, "", *list(self.bars.values())[-1:], "", fires)


def free_port(wanted: int) -> int:
    """This one, or another if it is taken."""
    with suppress(OSError), socket.create_server(("127.0.0.1", wanted)):
        return wanted
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wrongly_started(starts: Sequence[str], fires: Sequence[FireRecord]) -> list[str]:
    """What the jobs noted themselves, key and token of each start, against the ledger."""
    claims = {f"{fire.key} {fire.token}": fire.state.value for fire in fires}
    claims |= {f"{fire.key} {each.token}": each.outcome for fire in fires for each in fire.attempts}
    ran = [claim for claim, outcome in claims.items() if outcome == State.SUCCEEDED]
    return [
        *(f"{start}: started {count} times" for start, count in Counter(starts).items() if count > 1),
        *(f"{start}: started, and not in the ledger" for start in starts if start not in claims),
        *(f"{claim}: succeeded, and not started" for claim in ran if claim not in starts),
    ]
