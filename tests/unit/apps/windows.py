"""`windows.py URL`: a scheduler on this store, in a process that has nothing that Windows does not have.

What other packages do on Windows is theirs: they are imported first, as on Linux. Then POSIX modules, functions,
signals and clocks are taken away, `sys.platform` is changed, and Fencepost is imported.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import json
import os
import signal
import sys
import time
from typing import Any

import click
import psycopg
import redis.asyncio
import rich.console
import rich.table
import starlette.applications
import uvicorn
from uvicorn.protocols.http import h11_impl

LOADED = (click, psycopg, redis.asyncio, rich.console, rich.table, starlette.applications, uvicorn, h11_impl)
MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
NOT_THERE: tuple[tuple[Any, str], ...] = (
    *(
        (os, name)
        for name in ("fork", "forkpty", "register_at_fork", "killpg", "setsid", "getpgid", "getpgrp")
    ),
    *(
        (os, name)
        for name in ("getuid", "geteuid", "getgid", "getegid", "fchmod", "fchown", "pread", "pwrite")
    ),
    *(
        (os, name)
        for name in ("O_CLOEXEC", "O_DIRECTORY", "O_NONBLOCK", "sysconf", "getloadavg", "statvfs", "uname")
    ),
    *(
        (signal, f"SIG{name}")
        for name in ("HUP", "KILL", "CHLD", "USR1", "USR2", "STOP", "CONT", "PIPE", "ALRM")
    ),
    *((time, name) for name in ("clock_gettime", "CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "tzset")),
)


class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def refuse(*_: object) -> None:
    raise NotImplementedError


def become_windows() -> None:
    assert not [name for name in sys.modules if name.startswith("fencepost")]
    sys.meta_path.insert(0, Hidden())
    for name in MODULES:
        sys.modules.pop(name, None)
    for owner, name in NOT_THERE:
        if hasattr(owner, name):
            delattr(owner, name)
    loop_type: Any = asyncio.SelectorEventLoop
    loop_type.add_signal_handler = refuse
    sys.platform = "win32"


def run(url: str) -> dict[str, Any]:
    from fencepost import Scheduler, every

    scheduler = Scheduler(url)
    ran: list[str] = []

    @scheduler.job(every(seconds=1))
    async def on_the_loop() -> None:
        ran.append("loop")

    @scheduler.job(every(seconds=1))
    def in_a_thread() -> None:
        ran.append("thread")
        if len(ran) > 2:
            signal.raise_signal(signal.SIGTERM)

    scheduler.command(["echo", "hello"], every(days=300), id="command")

    async def trigger_command() -> str:
        async with scheduler:
            handle = await scheduler.trigger("command")
            return (await handle.wait(timeout=60)).error or ""

    error = asyncio.run(trigger_command())
    scheduler.run(seconds=60)  # the signal ends it long before
    return {"ran": sorted(set(ran)), "command": error}


def look(url: str) -> dict[str, Any]:
    from fencepost.cli import outcome
    from fencepost.errors import ConfigurationError
    from fencepost.store.urls import store_from_url
    from fencepost.web.connections import room

    codes = [outcome([command, "--store", url]) for command in ("status", "jobs", "fires", "audit")]
    try:
        store_from_url("sqlite:///jobs.db")
        refused = ""
    except ConfigurationError as error:
        refused = str(error)
    return {"codes": [] if url == "memory://" else codes, "sqlite": refused, "room": room(10)}


if __name__ == "__main__":
    become_windows()
    found = {**run(sys.argv[1]), **look(sys.argv[1])}
    print(f"\n{json.dumps(found)}")
