"""Your own scheduler in virtual time: a year of fires in a fraction of a second, with your real jobs.

    with virtual(scheduler, start=datetime(2026, 3, 28, tzinfo=UTC)) as t:
        t.advance(days=2)
        t.assert_ran("report", times=2)

Time stands still until you advance it. Jobs run inline: coroutines share the virtual loop, where `asyncio.sleep`
takes no real time; functions run to their end while time stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from fencepost.clock import seconds
from fencepost.errors import UsageError
from fencepost.insight.audit import AuditResult, audit
from fencepost.model import FireRecord, Json, State
from fencepost.model.notices import Notice
from fencepost.model.triggers import as_utc
from fencepost.replica.replica import Identity, Replica
from fencepost.runs.host import InlineHost, StandIn
from fencepost.scheduler.scheduler import Scheduler
from fencepost.settings import did_you_mean
from fencepost.store.base import FireQuery
from fencepost.store.memory import MemoryStore
from fencepost.testing.world import EPOCH, Process, World

T = TypeVar("T")
Job = Callable[..., Any] | str
"""A job: its function, or its id."""

# Nothing fails here, so heartbeats can be rare: they would be most of what happens in a year. And nothing is
# forgotten, so that a test can read all of it afterwards.
PATIENT: dict[str, Any] = {
    "heartbeat": timedelta(hours=12),
    "leader_ttl": timedelta(days=1),
    "run_ttl": timedelta(days=1),
    "horizon": timedelta(days=14),
    "retention": timedelta(days=36_500),
}

SHOWN = 20
"""Rows of the ledger that a failed assertion shows."""


class WorldClock:
    """The world's one true time as a `Clock`."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall(self) -> datetime:
        return self._world.datetime()

    def steady(self) -> float:
        return self._world.now


class VirtualTime:
    """A replica of the scheduler in a world of its own."""

    def __init__(
        self, scheduler: Scheduler, start: datetime, command: StandIn, deliver: bool = False
    ) -> None:
        self.scheduler = scheduler
        self._deliver = deliver
        self._command = command
        self.world = World(as_utc(start, "start"))
        self.store = MemoryStore(WorldClock(self.world))
        self._process = Process(self.world, "virtual")
        self.replica: Replica | None = None
        self.notices: list[Notice] = []
        """What channels would have been told (`scheduler.notify`): nothing is sent."""

    # --- time -------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.world.datetime()

    def advance(self, amount: timedelta | None = None, **parts: float) -> None:
        """Let time pass: `advance(hours=25)`, `advance(timedelta(days=1))`. What is due meanwhile runs."""
        self._run_until(self.world.now + seconds(timedelta(**parts) if amount is None else amount))

    def advance_to(self, moment: datetime) -> None:
        """Let time pass until then; what is due at that very moment has started."""
        self._run_until(seconds(as_utc(moment, "moment") - self.world.start))

    def _run_until(self, when: float) -> None:
        if when < self.world.now:
            raise UsageError(
                f"it is {self.now} here, and time does not run backwards; advance to a later time"
            )
        self.world.run_until(when)
        for error in self._process.errors:
            raise AssertionError(f"an unexpected error in the loops: {error}")

    # --- the scheduler ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Take part. Done by `virtual`; call it again after `stop` to see what a downtime does."""
        self.do(self._start())

    def stop(self) -> None:
        """Stop gracefully. Time can still be advanced: a downtime."""
        assert self.replica is not None
        self.do(self.replica.drain())
        self.replica = None

    def trigger(
        self, job: Job, args: Mapping[str, Json] | None = None, *, timeout: float = 86_400.0
    ) -> FireRecord:
        """Run it by hand, let time pass until it has ended, and say how. `TimeoutError` after so many virtual
        seconds."""

        async def run() -> FireRecord:
            handle = await self.scheduler.trigger(job, args=args)
            return await handle.wait(timeout)

        return self.do(run())

    def pause(self, job: Job, *, reason: str = "", until: datetime | None = None) -> None:
        self.do(self.scheduler.pause(job, reason=reason, until=until))

    def resume(self, job: Job) -> None:
        self.do(self.scheduler.resume(job))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine here, for instance `t.do(scheduler.remove("report"))`."""
        return self._process.run_until_complete(work)

    # --- what happened ----------------------------------------------------------------------------------

    def fires(self, job: Job | None = None, state: State | str | None = None) -> list[FireRecord]:
        """The ledger, oldest first. Fires still to come are not in it."""
        states = (State(state),) if state else ()
        id = None if job is None else self._id(job)
        found = self.do(self.store.find_fires(FireQuery(job_id=id, states=states, limit=10**9)))
        return [fire for fire in reversed(found) if fire.due_at <= self.now]

    def ran(self, job: Job) -> list[FireRecord]:
        """The fires that ran to their end, whether they succeeded or failed."""
        return [fire for fire in self.fires(job) if fire.state in (State.SUCCEEDED, State.FAILED)]

    def assert_ran(
        self, job: Job, times: int | None = None, at: datetime | Sequence[datetime] | None = None
    ) -> None:
        """It ran and succeeded: so many times; for these due times and no others. Without either, at least once."""
        ran = self.ran(job)
        if failed := [fire for fire in ran if fire.state is State.FAILED]:
            error = (failed[0].error or "").strip().rpartition("\n")[2]
            raise self._otherwise(job, f"failed at {_shown(failed[0].due_at)}: {error}")
        if at is not None:
            expected = [as_utc(moment, "at") for moment in ([at] if isinstance(at, datetime) else at)]
            if [fire.due_at for fire in ran if fire.scheduled] != expected:
                raise self._otherwise(job, f"did not run at {', '.join(map(_shown, expected))} and only then")
        if len(ran) != times if times is not None else not ran:
            wanted = "at all" if times is None else f"{times} times"
            raise self._otherwise(job, f"ran {len(ran)} times, not {wanted}")

    def audit(self) -> AuditResult:
        """Whether all that was due since the start is accounted for once (see `fencepost.insight.audit`)."""
        return self.do(audit(self.store, since=self.world.start, retention=PATIENT["retention"]))

    def _id(self, job: Job) -> str:
        """A name with a typo would otherwise be a job that never ran."""
        id = self.scheduler.declared.id_of(job)
        if id not in self.store.state.jobs.rows:
            raise UsageError(f"there is no job {id!r} here{did_you_mean(id, self.store.state.jobs.rows)}")
        return id

    def _otherwise(self, job: Job, what: str) -> AssertionError:
        rows = self.fires(job)
        lines = [f"    {_shown(fire.due_at)} {fire.state}{_because(fire)}" for fire in rows[-SHOWN:]]
        head = f"the last {SHOWN} of {len(rows)} rows" if len(rows) > SHOWN else "the ledger"
        ledger = "\n".join([f"{head}:", *lines]) if rows else "nothing was due"
        return AssertionError(f"{self._id(job)} {what}; it is {_shown(self.now)}; {ledger}")

    async def _start(self) -> None:
        settings = self.scheduler.settings
        self.scheduler.settings = replace(settings, **PATIENT)
        self.scheduler.notifications.kept = None if self._deliver else self.notices
        try:
            self.replica = self.scheduler.lifecycle.replica_on(
                self.store,
                WorldClock(self.world),
                InlineHost(self._command),
                Identity("virtual", "virtual", 0),
                inline=True,
            )
        finally:
            self.scheduler.settings = settings
            self.scheduler.notifications.kept = None
        for service in (self.replica.declarer, self.replica.watcher, self.replica.settler):
            service.longest = seconds(PATIENT["retention"])  # they have nothing to do unless they are woken
        self.replica.begin()
        await self.replica.ready()


@contextmanager
def virtual(
    scheduler: Scheduler,
    start: datetime = EPOCH,
    *,
    command: StandIn = lambda fire, words: None,
    deliver: bool = False,
) -> Iterator[VirtualTime]:
    """The scheduler in virtual time, from `start` on. Its own store is left alone: the ledger here begins empty.

    Commands are not run. They succeed, or do what `command` does, which is called with the fire and the words.
    Notifications are not sent, but kept in `notices`; with `deliver` the channels themselves are used.
    """
    time = VirtualTime(scheduler, start, command, deliver)
    time.start()
    try:
        yield time
    finally:
        if time.replica is not None:
            time.stop()
        scheduler.lifecycle.forget_replica()


def _shown(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _because(fire: FireRecord) -> str:
    many = f", {fire.count} fires through {_shown(fire.last_due)}" if fire.count > 1 else ""
    return (f": {fire.why}" if fire.why else "") + many
