"""`scheduler.run()`: take part until a signal or for a while, with the process to ourselves."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING

from fencepost.scheduler import systemd
from fencepost.scheduler.garbage import short_collections
from fencepost.scheduler.signals import end_at_once, on_hangup, on_signal, tell_stopping

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler


async def run_until_signal(scheduler: Scheduler, seconds: float | None) -> int | None:
    """The signal that ended it; None: the time was over."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int | None] = loop.create_future()

    def end(number: int | None = None) -> None:
        if not stop.done():
            if number is not None:
                tell_stopping(number)
            stop.set_result(number)
        elif number == signal.SIGINT:
            end_at_once(scheduler.running_keys)

    for number in (signal.SIGTERM, signal.SIGINT):
        on_signal(loop, number, partial(end, number))
    on_hangup(loop, scheduler.reload, end)
    async with scheduler:
        systemd.ready(scheduler.lifecycle.control_thread())
        with short_collections():
            if seconds is not None:
                loop.call_later(seconds, end)
            return await stop
