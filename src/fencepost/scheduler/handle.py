"""What a trigger hands back, and the scheduler as blocking code sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fencepost.errors import RunFailed, UsageError
from fencepost.insight.jobs import JobView, find_jobs
from fencepost.insight.why import Answer
from fencepost.model import FireRecord, Json, State

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

LOOK_EVERY = (0.02, 0.05, 0.1, 0.2, 0.5)


class Handle:
    """One manual fire."""

    def __init__(self, scheduler: Scheduler, key: str, job_id: str, is_asked_for: bool = False) -> None:
        """`is_asked_for`: in a transaction that may not be committed yet."""
        self._scheduler = scheduler
        self.key = key
        self.job_id = job_id
        self._is_asked_for = is_asked_for

    async def wait(self, timeout: float | None = None) -> FireRecord:
        """Until the fire is final; `TimeoutError` after so many seconds. The fire goes on all the same."""
        return await self._scheduler.ask(self.do_wait(timeout))

    async def result(self, timeout: float | None = None) -> Json:
        """What the body returned, when the fire has ended. `RunFailed` if it did not succeed, `TimeoutError` after so
        many seconds. None: it returned None, or something that is not JSON of at most 16 KB."""
        return _result_of(await self.wait(timeout))

    async def record(self) -> FireRecord:
        """The fire as it is now."""
        return await self._scheduler.ask(self.do_record())

    async def do_wait(self, timeout: float | None) -> FireRecord:
        async with asyncio.timeout(timeout):
            polls = 0
            while (fire := await self._found()) is None or not fire.state.final:
                await asyncio.sleep(LOOK_EVERY[min(polls, len(LOOK_EVERY) - 1)])
                polls += 1
            return fire

    async def _found(self) -> FireRecord | None:
        return await (self._scheduler.do_find(self.key) if self._is_asked_for else self.do_record())

    async def do_record(self) -> FireRecord:
        fire = await self._scheduler.do_find(self.key)
        if fire is None:
            raise UsageError(f"there is no fire {self.key!r} (any more)")
        return fire

    def __repr__(self) -> str:
        return f"<Handle {self.key}>"


class SyncHandle:
    """A handle for blocking code."""

    def __init__(self, scheduler: Scheduler, handle: Handle) -> None:
        self._scheduler = scheduler
        self._handle = handle
        self.key = handle.key
        self.job_id = handle.job_id

    def wait(self, timeout: float | None = None) -> FireRecord:
        return self._scheduler.ask_blocking(self._handle.do_wait(timeout))

    def result(self, timeout: float | None = None) -> Json:
        return _result_of(self.wait(timeout))

    def record(self) -> FireRecord:
        return self._scheduler.ask_blocking(self._handle.do_record())


def _result_of(fire: FireRecord) -> Json:
    if fire.state is not State.SUCCEEDED:
        why = f": {fire.why}" if fire.reason else ""
        last = fire.error.strip().splitlines()[-1] if fire.error and fire.error.strip() else ""
        raise RunFailed(f"{fire.key} is {fire.state}{why}{f' ({last})' if last else ''}", fire.state.value)
    return fire.result


class SyncScheduler:
    """`scheduler.sync`: the same operations for blocking code, over the same control loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def start(self) -> None:
        """`start_in_background`"""
        self._scheduler.start_in_background()

    def stop(self) -> None:
        """`stop_in_background`"""
        self._scheduler.stop_in_background()

    def drain(self) -> None:
        """Blocks for `ready_delay`: not on a thread that has requests to answer."""
        self._scheduler.ask_host(self._scheduler.drain())

    def trigger(
        self,
        what: Callable[..., Any] | str,
        *,
        args: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        if_active: str = "queue",
        connection: Any = None,
    ) -> SyncHandle:
        if connection is not None:
            fire = self._scheduler.new_fire(what, args, idempotency_key, if_active)
            self._scheduler.transactions.write(connection, fire)
            return SyncHandle(
                self._scheduler, Handle(self._scheduler, fire.key, fire.job_id, is_asked_for=True)
            )
        work = self._scheduler.do_trigger(
            what, args=args, idempotency_key=idempotency_key, if_active=if_active
        )
        return SyncHandle(self._scheduler, self._scheduler.ask_blocking(work))

    def retry(self, key: str, *, again: bool = False, idempotency_key: str | None = None) -> SyncHandle:
        work = self._scheduler.do_retry(key, again=again, idempotency_key=idempotency_key)
        return SyncHandle(self._scheduler, self._scheduler.ask_blocking(work))

    def add(
        self, what: Callable[..., Any] | str, trigger: Any, *, id: str, replace: bool = False, **policies: Any
    ) -> None:
        self._scheduler.ask_blocking(
            self._scheduler.do_add(what, trigger, id=id, replace=replace, **policies)
        )

    def remove(self, what: Callable[..., Any] | str) -> None:
        self._scheduler.ask_blocking(self._scheduler.do_change(what, "remove"))

    def pause(
        self, what: Callable[..., Any] | str, *, reason: str = "", until: datetime | None = None
    ) -> None:
        self._scheduler.ask_blocking(self._scheduler.do_change(what, "pause", reason, until))

    def resume(self, what: Callable[..., Any] | str) -> None:
        self._scheduler.ask_blocking(self._scheduler.do_change(what, "resume"))

    def cancel(self, key: str) -> FireRecord:
        return self._scheduler.ask_blocking(self._scheduler.do_cancel(key))

    def find_jobs(self) -> tuple[JobView, ...]:
        return self._scheduler.reader.ask_blocking(find_jobs)

    def find_fires(
        self,
        job: Callable[..., Any] | str | None = None,
        state: str | Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        *,
        planned: bool = False,
    ) -> tuple[FireRecord, ...]:
        read = self._scheduler.fires_look(job, state, since, until, limit, planned)
        return self._scheduler.reader.ask_blocking(read)

    def why(self, job: Callable[..., Any] | str, at: datetime | str | None = None) -> Answer:
        return self._scheduler.reader.ask_blocking(self._scheduler.why_look(job, at))
