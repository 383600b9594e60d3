"""What a trigger hands back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from fencepost.errors import NotFound, RunFailed
from fencepost.model import FireRecord, Json, State

P = ParamSpec("P")
T = TypeVar("T")

POLL_EVERY = (0.02, 0.05, 0.1, 0.2, 0.5)
"""Seconds between two polls for the end of a fire: the last one again and again."""


class Ask(Protocol):
    """Runs a coroutine on the control loop, and awaits it on the caller's."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]: ...


class Handle:
    """One manual fire."""

    def __init__(
        self,
        ask: Ask,
        find: Callable[[str], Awaitable[FireRecord | None]],
        key: str,
        job_id: str,
        added: FireRecord | None,
    ) -> None:
        """`added`: the fire as it was added, or found; None: it is asked for in a transaction that may not be
        committed yet."""
        self._ask = ask
        self._find = find
        self.key = key
        self.job_id = job_id
        self.added = added

    async def wait(self, timeout: float | None = None) -> FireRecord:
        """Until the fire is final; `TimeoutError` after so many seconds. The fire goes on all the same."""
        return await self._ask(self.do_wait(timeout))

    async def result(self, timeout: float | None = None) -> Json:
        """What the body returned, when the fire has ended. `RunFailed` if it did not succeed, `TimeoutError` after so
        many seconds. None: it returned None, or something that is not JSON of at most 16 KB."""
        return _result_of(await self.wait(timeout))

    async def record(self) -> FireRecord:
        """The fire as it is now."""
        return await self._ask(self.do_record())

    async def do_wait(self, timeout: float | None) -> FireRecord:
        """On the control loop."""
        async with asyncio.timeout(timeout):
            polls = 0
            while (fire := await self._found()) is None or not fire.state.final:
                await asyncio.sleep(POLL_EVERY[min(polls, len(POLL_EVERY) - 1)])
                polls += 1
            return fire

    async def do_record(self) -> FireRecord:
        """On the control loop."""
        fire = await self._find(self.key)
        if fire is None:
            raise NotFound(f"there is no fire {self.key!r} (any more)")
        return fire

    async def _found(self) -> FireRecord | None:
        return await (self._find(self.key) if self.added is None else self.do_record())

    def __repr__(self) -> str:
        return f"<Handle {self.key}>"


class AskBlocking(Protocol):
    """Runs a coroutine on the control loop, and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


def _blocking(
    method: Callable[Concatenate[Handle, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncHandle, P], T]:
    @wraps(method)
    def call(self: SyncHandle, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._ask(method(self._handle, *args, **kwargs))

    return call


class SyncHandle:
    """A handle for blocking code: the same methods."""

    def __init__(self, ask: AskBlocking, handle: Handle) -> None:
        self._ask = ask
        self._handle = handle
        self.key = handle.key
        self.job_id = handle.job_id

    wait = _blocking(Handle.wait)
    result = _blocking(Handle.result)
    record = _blocking(Handle.record)


def _result_of(fire: FireRecord) -> Json:
    if fire.state is not State.SUCCEEDED:
        why = f": {fire.why}" if fire.reason else ""
        last = fire.error.strip().splitlines()[-1] if fire.error and fire.error.strip() else ""
        raise RunFailed(f"{fire.key} is {fire.state}{why}{f' ({last})' if last else ''}", fire.state.value)
    return fire.result
