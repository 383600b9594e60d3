"""What can be awaited of a scheduler: operations on fires and jobs, and reading. `sync.py` derives the same for
blocking code."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from fencepost.insight.jobs import JobView, find_jobs
from fencepost.insight.reader import Reader
from fencepost.insight.why import Answer
from fencepost.model import Backfill, FireRecord, Json
from fencepost.scheduler.backfilling import Range
from fencepost.scheduler.declarations import Declarations
from fencepost.scheduler.fire_operations import FireOperations
from fencepost.scheduler.handle import Handle
from fencepost.scheduler.job_operations import JobOperations
from fencepost.scheduler.lifecycle import Lifecycle
from fencepost.scheduler.reading import answer_of, fires_of
from fencepost.scheduler.transactions import Transactions
from fencepost.settings import Settings

T = TypeVar("T")


class Operations:
    """The awaited half of the public face. Each method hands its work to the control loop, or to the reading thread."""

    settings: Settings
    declared: Declarations
    lifecycle: Lifecycle
    transactions: Transactions
    fire_operations: FireOperations
    job_operations: JobOperations

    @property
    def reader(self) -> Reader:
        """The read side: its own thread, and its own store where that is possible."""
        return self.lifecycle.reader

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the control loop and await it here."""
        return await self.lifecycle.ask(work)

    def ask_blocking(self, work: Coroutine[Any, Any, T], patience: float | None = None) -> T:
        """Run it on the control loop and wait for it, so many seconds at the most."""
        return self.lifecycle.ask_blocking(work, patience)

    # --- fires --------------------------------------------------------------------------------------------

    async def trigger(
        self,
        what: Callable[..., Any] | str,
        *,
        args: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        if_active: str = "queue",
        connection: Any = None,
    ) -> Handle:
        """Run a job now, on whichever replica has room. With `if_active="refuse"` an active run raises
        `AnotherRunIsActive`; the same `idempotency_key` adds one fire however often it is sent. With a `connection` of
        yours to the store's database the fire is committed with your transaction, or not at all
        (docs/transactions.md)."""
        if connection is not None:
            fire = self.fire_operations.new_fire(what, args, idempotency_key, if_active)
            await self.transactions.write_async(connection, fire)
            return self.fire_operations.handle(fire)
        return await self.ask(
            self.fire_operations.trigger(
                what, args=args, idempotency_key=idempotency_key, if_active=if_active
            )
        )

    async def later(
        self,
        what: Callable[..., Any] | str,
        when: str | float | timedelta | datetime,
        *,
        args: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
    ) -> Handle:
        """Run a job once, later: after so long (`"10m"`, seconds, a timedelta), or at this moment (a datetime with a
        zone). The same `idempotency_key` adds one fire however often it is sent; `cancel(handle.key)` takes it back."""
        return await self.ask(
            self.fire_operations.later(what, when, args=args, idempotency_key=idempotency_key)
        )

    async def retry(self, key: str, *, again: bool = False, idempotency_key: str | None = None) -> Handle:
        """Run what the fire `key` ran once more, with its due time. Fenced effects that it has committed do not happen
        twice. A fire that has succeeded needs `again=True`: then they happen once more."""
        return await self.ask(self.fire_operations.retry(key, again=again, idempotency_key=idempotency_key))

    async def cancel(self, key: str) -> FireRecord:
        return await self.ask(self.fire_operations.cancel(key))

    # --- jobs ---------------------------------------------------------------------------------------------

    async def add(
        self,
        /,
        what: Callable[..., Any] | str,
        trigger: Any,
        *,
        id: str,
        replace: bool = False,
        **policies: Any,
    ) -> None:
        """Add a job at run time. With `replace` it may take the place of one with the same id, also of one that code
        declares: then it holds until it is removed, or the code declares the same (docs/dynamic-jobs.md)."""
        await self.ask(self.job_operations.add(what, trigger, id=id, replace=replace, **policies))

    async def change(
        self,
        /,
        what: Callable[..., Any] | str,
        trigger: Any = None,
        *,
        version: str | None = None,
        **policies: Any,
    ) -> None:
        """Change the stored definition of a job: its schedule, its task (`task="other"`), its policies. What is not
        named stays as it is; None brings a policy back to its default. `version`: the `fingerprint` that you have seen;
        if another definition holds by now, `Conflict` is raised and nothing is changed."""
        await self.ask(self.job_operations.edit(what, trigger, version=version, **policies))

    async def remove(self, what: Callable[..., Any] | str) -> None:
        await self.ask(self.job_operations.change(what, "remove"))

    async def pause(
        self, what: Callable[..., Any] | str, *, reason: str = "", until: datetime | None = None
    ) -> None:
        """Durable: due fires are recorded as skipped until resumed, or until `until`."""
        await self.ask(self.job_operations.change(what, "pause", reason, until))

    async def resume(self, what: Callable[..., Any] | str) -> None:
        await self.ask(self.job_operations.change(what, "resume"))

    async def backfill(
        self,
        what: Callable[..., Any] | str,
        since: datetime,
        until: datetime,
        *,
        limit: int = 1,
        reverse: bool = False,
        only_missing: bool = False,
        name: str | None = None,
    ) -> Backfill:
        """Run the past due times of a job's calendar, since <= due < until, at most `limit` at once
        (docs/backfill.md)."""
        asked = Range(since, until, limit, reverse, only_missing, name)
        return await self.ask(self.job_operations.backfill(what, asked))

    async def skip(self, what: Callable[..., Any] | str, due_at: datetime, *, reason: str = "") -> None:
        """Do not run the coming fire of this moment."""
        await self.ask(self.job_operations.skip(what, due_at, reason=reason))

    async def unskip(self, what: Callable[..., Any] | str, due_at: datetime) -> None:
        """Run it after all. As long as it lies ahead."""
        await self.ask(self.job_operations.skip(what, due_at, undo=True))

    # --- reading ------------------------------------------------------------------------------------------

    async def find_jobs(self) -> tuple[JobView, ...]:
        """All jobs of the store, by id: those of this code, of others, and those added at run time."""
        return await self.reader.ask(find_jobs)

    async def find_fires(
        self,
        job: Callable[..., Any] | str | None = None,
        state: str | Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        *,
        planned: bool = False,
    ) -> tuple[FireRecord, ...]:
        """The ledger, newest first. `since` and `until` choose by due time. Fires that are planned and not due yet are
        left out, unless `planned`, `until` or `state="pending"` asks for them."""
        id = None if job is None else self.declared.id_of(job)
        return await self.reader.ask(fires_of(id, state, since, until, limit, planned))

    async def why(self, job: Callable[..., Any] | str, at: datetime | str | None = None) -> Answer:
        """What became of the fire of that moment (`"03:00"`, an ISO time, or a datetime), or of the latest one."""
        return await self.reader.ask(answer_of(self.declared.id_of(job), at, self.settings.retention))
