"""Signals of `scheduler.run()` and `fencepost serve`, and the end without waiting."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from fencepost.scheduler import systemd

log = logging.getLogger("fencepost")

INTERRUPTED = 130


def on_signal(loop: asyncio.AbstractEventLoop, number: int, act: Callable[[], object]) -> None:
    """On the main thread. Event loops on Windows take no handlers: there Python's own handler wakes the loop."""
    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(act))


def on_hangup(
    loop: asyncio.AbstractEventLoop, reload: Callable[[], None] | None, stop: Callable[[int], None]
) -> None:
    """SIGHUP reloads what can be reloaded, else it stops gracefully: the terminal is gone. Under `nohup`, which ignores
    it, it stays ignored. Windows has no such signal."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None:
        return
    if reload is not None:
        on_signal(loop, hangup, reload)
    elif signal.getsignal(hangup) != signal.SIG_IGN:
        on_signal(loop, hangup, partial(stop, hangup))


def tell_stopping(number: int) -> None:
    again = "; Ctrl-C again ends at once" if number == signal.SIGINT else ""
    log.info("%s: stopping%s", signal.Signals(number).name, again)
    systemd.stopping()


def end_at_once(runs: Iterable[str]) -> None:
    """The second Ctrl-C. What runs is settled as after a crash, which it is: nothing here can wait for a thread."""
    keys = ", ".join(runs)
    log.warning("ended at once%s", f"; cut off, and settled as after a crash: {keys}" if keys else "")
    logging.shutdown()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(INTERRUPTED)
