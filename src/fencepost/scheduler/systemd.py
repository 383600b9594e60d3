"""What systemd hears of `fencepost run` and `serve` in a unit with `Type=notify`: that it is ready, alive, stopping, as
sd_notify(3) describes it. Without systemd nothing is sent.

The signs of life come from the control thread. A process whose claims and heartbeats stand still is restarted; one that
only waits for its store is not.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket

from fencepost.replica.control import ControlThread

log = logging.getLogger("fencepost")

SIGNS_IN_TIME = 3
"""Signs of life within the time that systemd waits for one."""


def ready(control: ControlThread) -> None:
    _send("READY=1")
    if (patience := _patience()) is not None:
        control.submit(_stay_alive(patience / SIGNS_IN_TIME))


def stopping() -> None:
    _send("STOPPING=1")


async def _stay_alive(every: float) -> None:
    """Until the control thread ends. Draining counts as alive: systemd has a limit of its own for that."""
    while True:
        _send("WATCHDOG=1")
        await asyncio.sleep(every)


def _patience() -> float | None:
    """Seconds after which systemd restarts a process that gave no sign of life (`WatchdogSec=`). None: it does not."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(microseconds) / 1e6 or None


def _send(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            sender.setblocking(False)
            sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as error:
            log.warning("systemd does not hear %s: %s", state, error.strerror)
