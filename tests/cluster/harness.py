"""Real processes on one store: start them, do them harm, and judge what became of every fire.

`Cluster` starts `apps/load.py` as often as asked. Who leads is read from the store's roster. `verdict` compares
three records that know nothing of each other: what the bodies wrote to a file, the store's ledger read with a
fresh store object, and the calendar worked out anew from the recorded definitions.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from fencepost import Scheduler, StoreUnavailable
from fencepost.model import FireRecord, JobEvent, State
from fencepost.store.base import FireQuery, Roster, Store
from fencepost.store.urls import store_from_url
from tests.protocol.calendar import due_between

T = TypeVar("T")

LOAD = Path(__file__).parent / "apps" / "load.py"
PAGE = 5_000
PATIENCE = 5.0
IN_FLIGHT = 0.5
"""Seconds before a fault within which a body that has ended may not be settled yet."""
AFTERMATH = 10.0
"""Seconds after a fault in which the longest gap between two starts is looked for."""


@dataclass
class Process:
    popen: subprocess.Popen[bytes]
    errors: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def told(self) -> str:
        """What it wrote to stderr."""
        return self.errors.read_text()


@dataclass(slots=True)
class Fault:
    kind: str
    pid: int
    begun: float
    ended: float | None = None
    """When it was resumed; a killed process stays dead."""

    def covers(self, moment: float) -> bool:
        return self.begun - IN_FLIGHT <= moment and (self.ended is None or moment <= self.ended + IN_FLIGHT)


class Reader:
    """A store object of our own, on a loop of its own: what anybody could see from outside."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._runner = asyncio.Runner()
        self._store: Store | None = None
        self.refused = 0
        """How often the store was unavailable."""

    def ask(self, question: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Asked again for a while if the store is busy: only reading, it is always safe to repeat."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self._store is None:
                    self._store = store_from_url(self.url)
                    self._runner.run(self._store.open())
                return self._runner.run(question(self._store))
            except StoreUnavailable:
                self.refused += 1
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def roster(self) -> Roster:
        return self.ask(lambda store: store.roster())

    def fire(self, key: str) -> FireRecord | None:
        found = self.ask(lambda store: store.find_fires(FireQuery(key=key)))
        return found[0] if found else None

    def fires(self, since: datetime, until: datetime) -> list[FireRecord]:
        """All with `since` <= due < `until`. A page that is full is asked for again in halves: fires that fall
        due together would be cut in two by a page's end."""
        query = FireQuery(since=since, until=until, limit=PAGE)
        found = self.ask(lambda store: store.find_fires(query))
        if len(found) < PAGE or until - since <= timedelta(microseconds=1):
            return [fire for fire in found if fire.due_at >= since]
        middle = since + (until - since) / 2
        return [*self.fires(since, middle), *self.fires(middle, until)]

    def close(self) -> None:
        if self._store is not None:
            self._runner.run(self._store.close())
        self._runner.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cluster:
    """Use as a context manager: whatever happens, every process is ended."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        reader_url: str | None = None,
        jobs: int = 0,
        period: float = 1.0,
        spread: float | None = None,
        anchor: float | None = None,
        body: float = 0.0,
        long: float = 30.0,
        kind: str = "coroutine",
        buffered: bool = False,
        wrong_clocks: bool = False,
        env: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """`reader_url`: the store as we look at it, if the processes go another way. `wrong_clocks`: what the processes
        say of the time of day is not true. `settings`: the scheduler's, as `leader_ttl=2`."""
        self.url = url
        self.folder = folder
        self.log = folder / "runs.log"
        self.processes: list[Process] = []
        self.faults: list[Fault] = []
        self.caught = 0
        self._wrong_clocks = wrong_clocks
        self.replicas: dict[str, int] = {}
        """Which process a replica is, as far as seen."""
        self.reader = Reader(reader_url or url)
        self.anchor = float(int(time.time())) if anchor is None else anchor
        self._scheduler: Scheduler | None = None
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")},
            **{f"FENCEPOST_{name.upper()}": str(value) for name, value in settings.items()},
            "LOAD_STORE": url,
            "LOAD_JOBS": str(jobs),
            "LOAD_PERIOD": str(period),
            "LOAD_SPREAD": str(period if spread is None else spread),
            "LOAD_ANCHOR": str(self.anchor),
            "LOAD_BODY": str(body),
            "LOAD_LONG": str(long),
            "LOAD_KIND": kind,
            "LOAD_LOG": str(self.log),
            "LOAD_BUFFERED": "1" if buffered else "",
            "LOAD_PARENT": str(os.getpid()),
            **(env or {}),
        }

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # ends a stopped process as well
            process.popen.wait()
        if self._scheduler is not None:
            asyncio.run(self._scheduler.stop())
        self.reader.close()

    # --- processes --------------------------------------------------------------------------------------

    def start(
        self, number: int = 1, app: Path = LOAD, seconds: float = 30.0, env: Mapping[str, str] | None = None
    ) -> list[Process]:
        """Start so many, and return when all have joined."""
        return self.joined(self.spawn(number, app, env), seconds)

    def spawn(self, number: int = 1, app: Path = LOAD, env: Mapping[str, str] | None = None) -> list[Process]:
        """Start so many. The working folder is an empty one: no settings file of ours reaches them."""
        started = []
        for _ in range(number):
            errors = Path(tempfile.mkstemp(dir=self.folder, suffix=".stderr")[1])
            with errors.open("wb") as stderr:
                popen = subprocess.Popen(
                    [sys.executable, str(app)],
                    cwd=self.folder,
                    env={**self._env, **(env or {})},
                    stderr=stderr,
                    start_new_session=True,  # what it forks can be ended with it
                )
            started.append(Process(popen, errors))
        self.processes += started
        return started

    def joined(self, started: list[Process], seconds: float = 15.0) -> list[Process]:
        def all_there() -> bool:
            for process in started:
                assert process.alive, f"{process.pid} ended: {process.told()}"
            return {process.pid for process in started} <= {replica.pid for replica in self.roster().replicas}

        self.wait_for(all_there, seconds, "all processes join")
        return started

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.processes if process.alive]

    def roster(self) -> Roster:
        roster = self.reader.roster()
        self.replicas.update({replica.id: replica.pid for replica in roster.replicas})
        return roster

    def leader(self, seconds: float = 5.0) -> Process:
        """The process that leads, as the store has it."""
        return self.wait_for(self._leader, seconds, "there is a leader")

    def worker(self) -> Process:
        """One that does not lead."""
        leader = self.leader()
        return next(process for process in self.alive if process is not leader)

    def _leader(self) -> Process | None:
        holder = self.roster().leader.holder
        pid = self.replicas.get(holder or "")
        return next((process for process in self.alive if process.pid == pid), None)

    # --- harm -------------------------------------------------------------------------------------------

    def kill(self, process: Process) -> Fault:
        self.roster()
        fault = self._fault("kill -9", process)
        process.popen.kill()
        process.popen.wait()
        return fault

    def terminate(self, process: Process, seconds: float = 15.0) -> int:
        """SIGTERM; its exit code."""
        fault = self._fault("SIGTERM", process)
        process.popen.terminate()
        code = process.popen.wait(seconds)
        fault.ended = time.time()
        return code

    def stop(self, process: Process) -> Fault:
        """SIGSTOP, between two transactions: a process stopped inside of one keeps the lock of an embedded store,
        and nobody can do anything until it goes on. `caught` counts how often that had to be avoided."""
        self.roster()
        for _ in range(200):
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.005)
            if not holds_store_lock(process.pid):
                return self._fault("SIGSTOP", process)
            self.caught += 1
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.005)
        raise AssertionError(f"{process.pid} never lets go of the store's lock")

    def resume(self, process: Process) -> None:
        os.kill(process.pid, signal.SIGCONT)
        for fault in self.faults:
            if fault.kind == "SIGSTOP" and fault.pid == process.pid and fault.ended is None:
                fault.ended = time.time()

    def _fault(self, kind: str, process: Process) -> Fault:
        self.faults.append(Fault(kind, process.pid, time.time()))
        return self.faults[-1]

    # --- asking -----------------------------------------------------------------------------------------

    def trigger(self, job_id: str) -> str:
        """From this process, which takes no part; the key of the fire. A replica declares its jobs after it joined."""
        self.wait_for(
            lambda: self.reader.ask(lambda store: store.jobs([job_id])), 15, f"{job_id} is declared"
        )
        if self._scheduler is None:
            self._scheduler = Scheduler(store=self.reader.url)
        return self._scheduler.sync.trigger(job_id).key

    def wait_for(self, condition: Callable[[], T | None], seconds: float, what: str) -> T:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > deadline:
                told = "\n".join(f"--- {process.pid}\n{process.told()[-2000:]}" for process in self.processes)
                raise AssertionError(f"not within {seconds} s: {what}\n{told}")
            time.sleep(0.01)
        return found

    def planned_ahead(self, seconds: float, patience: float = 20.0) -> None:
        """Wait until every job's fires are in the store for so long. A leader lost before its first plan takes the
        plan with it: then fires fall due unplanned until the next one leads, and are rightly late."""

        def all_planned() -> bool:
            until = datetime.now(UTC) + timedelta(seconds=seconds)
            jobs = self.reader.ask(lambda store: store.jobs())
            return not any(job.behind_at(until) for job in jobs)

        self.wait_for(all_planned, patience, f"all jobs are planned for {seconds} s")

    def sleep_until(self, wall: float) -> None:
        time.sleep(max(0.0, wall - time.time()))

    def marks(self) -> list[Mark]:
        marks = [mark for log in (self.log, *self.folder.glob("runs.log.*")) for mark in read_log(log)]
        if not self._wrong_clocks:
            return marks
        ahead = time.time() - time.monotonic()
        return [replace(mark, wall=mark.steady + ahead) for mark in marks]

    def starts(self, key: str) -> list[Mark]:
        return [mark for mark in self.marks() if mark.what == "start" and mark.key == key]

    def settled(self, until: datetime, seconds: float) -> None:
        """Wait until everything due by then is final."""
        since = datetime.fromtimestamp(self.anchor, UTC) - timedelta(days=1)

        def all_final() -> bool:
            return all(fire.state.final for fire in self.reader.fires(since, until))

        self.wait_for(all_final, seconds, f"everything due until {until} is settled")

    def finish(self, patience: float = 20.0) -> Verdict:
        """Wait until all that is due now is settled, stop everybody gracefully, and judge."""
        until = datetime.now(UTC)
        time.sleep(0.2)
        self.settled(until, patience)
        for process in self.alive:
            process.popen.terminate()
        for process in self.alive:
            process.popen.wait(120)
        return self.verdict(until)

    def verdict(self, until: datetime) -> Verdict:
        reader = Reader(self.reader.url)
        try:
            return self._judge(reader, until)
        finally:
            reader.close()

    def _judge(self, reader: Reader, until: datetime) -> Verdict:
        since = datetime.fromtimestamp(self.anchor, UTC) - timedelta(days=1)
        histories = {
            record.id: reader.ask(lambda store, id=record.id: store.history(id))  # type: ignore[misc]
            for record in reader.ask(lambda store: store.jobs())
        }
        due = {job_id: due_by(history, until) for job_id, history in histories.items()}
        fires = [
            by_then(fire, until, histories.get(fire.job_id, ()))
            for fire in reader.fires(since, until + timedelta(microseconds=1))
            if fire.scheduled
        ]
        marks = self.marks()
        self.replicas.update({mark.replica: mark.pid for mark in marks})
        verdict = judge(due, fires, marks, self.faults, self.replicas)
        verdict.history = History(due, fires, marks, self.faults)
        return verdict


def holds_store_lock(pid: int) -> bool:
    """Whether it holds a lock others wait for (see /proc/locks): any but its beacon's, and but the lock for reading
    by which everybody holds on to a database's shared memory."""
    try:
        locks = Path("/proc/locks").read_text()
        names = {
            target.stat().st_ino: target.name
            for link in Path(f"/proc/{pid}/fd").iterdir()
            if (target := link.resolve()).exists()
        }
    except OSError:
        return False
    for line in locks.splitlines():
        _, kind, _, mode, owner, file, *_ = line.replace("->", "").split()
        name = names.get(int(file.rpartition(":")[2]), "")
        harmless = name.endswith(".alive") or (mode == "READ" and name.endswith("-shm"))
        if kind in ("POSIX", "FLOCK") and int(owner) == pid and not harmless:
            return True
    return False


# --- the records ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of the log: a body started, or ended."""

    what: str
    key: str
    token: int
    pid: int
    replica: str
    wall: float
    steady: float


def read_log(path: Path) -> list[Mark]:
    if not path.exists():
        return []
    marks = []
    text = path.read_text()
    for line in text[: text.rfind("\n") + 1].splitlines():  # the last one may be half written
        what, key, token, pid, replica, wall, steady = line.split()
        marks.append(Mark(what, key, int(token), int(pid), replica, float(wall), float(steady)))
    return marks


def due_by(history: Sequence[JobEvent], until: datetime) -> list[datetime]:
    """What the recorded definitions made due, each from when it took effect until its successor did."""
    defined = [event for event in history if event.kind in ("defined", "removed")]
    due: list[datetime] = []
    for event, successor in zip(defined, [*defined[1:], None], strict=True):
        if event.trigger is not None:
            end = min(until, successor.at) if successor else until
            due += due_between(event.trigger, event.since, end)
    return due


def by_then(fire: FireRecord, until: datetime, history: Sequence[JobEvent]) -> FireRecord:
    """The part of a row that was due by then. Replicas go on until they are stopped, and what they skip meanwhile joins
    the row of what was skipped before."""
    if fire.last_due <= until:
        return fire
    later = [moment for moment in due_by(history, fire.last_due) if moment > until]
    return replace(fire, count=fire.count - len(later), last_due_at=until)


# --- the verdict ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class History:
    """What a verdict rests on."""

    due: Mapping[str, Sequence[datetime]]
    fires: Sequence[FireRecord]
    marks: Sequence[Mark]
    faults: Sequence[Fault]


@dataclass
class Verdict:
    due: int = 0
    states: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    doubled: list[str] = field(default_factory=list)
    """Started again although the start before had not been put on record as lost, given back or to retry."""
    twice_with_one_token: list[str] = field(default_factory=list)
    unaccounted: list[str] = field(default_factory=list)
    """Due by the calendar, but in no final row."""
    invented: list[str] = field(default_factory=list)
    """In the ledger, but not in the calendar; or accounted for twice; or succeeded without a start."""
    lost_in_faults: list[str] = field(default_factory=list)
    lost_unexplained: list[str] = field(default_factory=list)
    """Lost although the body was not running in a killed or stopped process."""
    lateness: list[float] = field(default_factory=list)
    """Seconds from due to the first start, of fires that no faulted process had."""
    latest: str = ""
    gaps: list[tuple[str, float]] = field(default_factory=list)
    """By fault: the longest time without any start soon after."""
    history: History | None = None

    @property
    def ran(self) -> int:
        return self.states["succeeded"] + self.states["failed"]

    def late(self, share: float) -> float:
        """A quantile of lateness, in seconds."""
        return quantile(self.lateness, share)

    def violations(self, latest: float | None = None) -> list[str]:
        found = [
            f"{name}: {len(keys)}, as {', '.join(keys[:3])}"
            for name in ("doubled", "twice_with_one_token", "unaccounted", "invented", "lost_unexplained")
            if (keys := getattr(self, name))
        ]
        if latest is not None and self.lateness and max(self.lateness) > latest:
            found.append(f"a start {max(self.lateness):.3f} s late: {self.latest}")
        return found

    def evidence(self, most: int = 3) -> str:
        """What is known of the first fires that something is wrong with."""
        assert self.history is not None
        wrong = {*self.doubled[:most], *self.twice_with_one_token[:most], *self.lost_unexplained[:most]}
        marks = sorted(self.history.marks, key=lambda mark: mark.steady)
        lines = [
            str(each)
            for key in sorted(wrong)
            for each in (
                *(fire for fire in self.history.fires if fire.key == key),
                *(mark for mark in marks if mark.key == key),
            )
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        late = " / ".join(f"{self.late(share) * 1000:.1f}" for share in (0.5, 0.99, 1.0))
        gaps = "".join(f"; {kind}: gap {seconds:.2f} s" for kind, seconds in self.gaps)
        return (
            f"due {self.due}: {states}; doubled {len(self.doubled)}, unaccounted {len(self.unaccounted)}, "
            f"late p50/p99/max {late} ms{gaps}"
        )


def judge(
    due: Mapping[str, Sequence[datetime]],
    fires: Iterable[FireRecord],
    marks: Iterable[Mark],
    faults: Sequence[Fault],
    replicas: Mapping[str, int],
) -> Verdict:
    verdict = Verdict(due=sum(map(len, due.values())))
    by_key: dict[str, list[Mark]] = defaultdict(list)
    for mark in sorted(marks, key=lambda mark: mark.steady):
        by_key[mark.key].append(mark)
    rows: dict[str, list[FireRecord]] = defaultdict(list)
    for fire in fires:
        rows[fire.job_id].append(fire)
    for job_id in due.keys() | rows.keys():
        _account(verdict, job_id, due.get(job_id, ()), rows[job_id])
        for fire in rows[job_id]:
            _follow(verdict, fire, by_key.get(fire.key, []), faults, replicas)
    starts = sorted(mark.wall for own in by_key.values() for mark in own if mark.what == "start")
    verdict.gaps = [(fault.kind, _gap_after(fault, starts)) for fault in faults]
    return verdict


def _account(verdict: Verdict, job_id: str, due: Sequence[datetime], rows: list[FireRecord]) -> None:
    """Each moment of the calendar belongs to exactly one final row, and each row to the calendar."""
    counted: dict[datetime, int] = dict.fromkeys(due, 0)
    for row in rows:
        covered = [row.due_at] if row.count == 1 else [t for t in due if row.due_at <= t <= row.last_due]
        if len(covered) != row.count or row.due_at not in counted:
            verdict.invented.append(row.key)
        if row.state.final:
            verdict.states[row.state.value] += row.count
            for moment in covered:
                counted[moment] = counted.get(moment, 0) + 1
    verdict.unaccounted += [
        f"{job_id}@{moment:%H:%M:%S.%f}" for moment, times in counted.items() if not times
    ]
    verdict.invented += [
        f"{job_id}@{moment:%H:%M:%S.%f} twice" for moment, times in counted.items() if times > 1
    ]


def _follow(
    verdict: Verdict,
    fire: FireRecord,
    marks: Sequence[Mark],
    faults: Sequence[Fault],
    replicas: Mapping[str, int],
) -> None:
    """One fire: what its bodies wrote against what the ledger says."""
    starts = [mark for mark in marks if mark.what == "start"]
    tokens = [start.token for start in starts]
    if len(set(tokens)) < len(tokens):
        verdict.twice_with_one_token.append(fire.key)
    ended = {attempt.token: attempt.outcome for attempt in fire.attempts}
    for earlier in starts[:-1]:
        if ended.get(earlier.token) not in ("lost", "given back", "retry") or earlier.token == tokens[-1]:
            verdict.doubled.append(fire.key)
    if fire.state is State.SUCCEEDED and fire.token not in tokens:
        verdict.invented.append(f"{fire.key} succeeded without a start")
    owners = {attempt.replica for attempt in fire.attempts} | {fire.replica}
    harmed = [fault for fault in faults if fault.pid in {replicas.get(owner or "") for owner in owners}]
    if fire.state is State.LOST:
        explained = any(_was_running(fire, marks, fault) for fault in harmed if fault.kind != "SIGTERM")
        (verdict.lost_in_faults if explained else verdict.lost_unexplained).append(fire.key)
    due = fire.due_at.timestamp()
    # A fire that one of its owners held when it was stopped or killed is rightly late.
    if starts and not any(fault.covers(due) or due <= fault.begun <= starts[0].wall for fault in harmed):
        lateness = starts[0].wall - due
        if lateness > max(verdict.lateness, default=0.0):
            verdict.latest = fire.key
        verdict.lateness.append(lateness)


def _was_running(fire: FireRecord, marks: Sequence[Mark], fault: Fault) -> bool:
    """Claimed before the fault was over, and not ended long before it. (A body that has just ended may not be
    settled yet, and one that is claimed may not have written its start.)"""
    ends = [mark.wall for mark in marks if mark.what == "end" and mark.pid == fault.pid]
    claimed = fire.started_at.timestamp() if fire.started_at else 0.0
    return claimed <= (fault.ended or fault.begun) + IN_FLIGHT and all(
        end >= fault.begun - IN_FLIGHT for end in ends
    )


def _gap_after(fault: Fault, starts: Sequence[float]) -> float:
    moments = [fault.begun, *(wall for wall in starts if fault.begun <= wall <= fault.begun + AFTERMATH)]
    return max((later - earlier for earlier, later in itertools.pairwise(moments)), default=0.0)


def quantile(values: Sequence[float], share: float) -> float:
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
