"""`scheduler.sync`: the awaited operations for blocking code, derived with their signatures and docstrings."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from fencepost.scheduler.handle import Handle, SyncHandle
from fencepost.scheduler.operations import Operations

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

P = ParamSpec("P")
T = TypeVar("T")

Method = Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]]


def _blocking(method: Method[P, T]) -> Callable[Concatenate[SyncScheduler, P], T]:
    """The same method, run to its end on the control loop."""

    @wraps(method)
    def call(self: SyncScheduler, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._scheduler.ask_blocking(method(self._scheduler, *args, **kwargs))

    return call


def _reading(method: Method[P, T]) -> Callable[Concatenate[SyncScheduler, P], T]:
    """The same method, run to its end on the reading thread."""

    @wraps(method)
    def call(self: SyncScheduler, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._scheduler.reader.run_blocking(method(self._scheduler, *args, **kwargs))

    return call


def _with_handle(method: Method[P, Handle]) -> Callable[Concatenate[SyncScheduler, P], SyncHandle]:
    """The same method, with a handle for blocking code. A connection stays on the caller's thread, where it belongs."""

    @wraps(method)
    def call(self: SyncScheduler, /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle:
        scheduler, asked = self._scheduler, cast("dict[str, Any]", kwargs)
        if (connection := asked.get("connection")) is not None:
            what = args[0] if args else asked["what"]
            given = {name: value for name, value in asked.items() if name not in ("what", "connection")}
            fire = scheduler.fire_operations.new_fire(cast("str", what), **given)
            scheduler.transactions.write(connection, fire)
            return SyncHandle(scheduler.ask_blocking, scheduler.fire_operations.handle(fire))
        return SyncHandle(scheduler.ask_blocking, scheduler.ask_blocking(method(scheduler, *args, **kwargs)))

    return call


class SyncScheduler:
    """`scheduler.sync`: the same operations for blocking code, with the same signatures."""

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
        self._scheduler.lifecycle.ask_host(self._scheduler.drain())

    trigger = _with_handle(Operations.trigger)
    later = _with_handle(Operations.later)
    retry = _with_handle(Operations.retry)
    cancel = _blocking(Operations.cancel)
    backfill = _blocking(Operations.backfill)
    skip = _blocking(Operations.skip)
    unskip = _blocking(Operations.unskip)
    add = _blocking(Operations.add)
    change = _blocking(Operations.change)
    remove = _blocking(Operations.remove)
    pause = _blocking(Operations.pause)
    resume = _blocking(Operations.resume)
    find_jobs = _reading(Operations.find_jobs)
    find_fires = _reading(Operations.find_fires)
    why = _reading(Operations.why)
