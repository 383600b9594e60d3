"""Signals of `scheduler.run()` and `fencepost serve`, and the end without waiting."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress

log = logging.getLogger("fencepost")

INTERRUPTED = 130


def on_hangup(
    loop: asyncio.AbstractEventLoop, reload: Callable[[], None] | None, stop: Callable[[], None]
) -> None:
    """SIGHUP reloads what can be reloaded, else it stops gracefully: the terminal is gone. Under `nohup`, which ignores
    it, it stays ignored."""
    if reload is not None:
        loop.add_signal_handler(signal.SIGHUP, reload)
    elif signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop)


def tell_stopping(number: int) -> None:
    again = "; Ctrl-C again ends at once" if number == signal.SIGINT else ""
    log.info("%s: stopping%s", signal.Signals(number).name, again)


def end_at_once(runs: Iterable[str]) -> None:
    """The second Ctrl-C. What runs is settled as after a crash, which it is: nothing here can wait for a thread."""
    keys = ", ".join(runs)
    log.warning("ended at once%s", f"; cut off, and settled as after a crash: {keys}" if keys else "")
    logging.shutdown()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(INTERRUPTED)
