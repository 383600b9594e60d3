"""A replica under load, told by the environment what to do. `tests.cluster.harness` starts it.

Every body appends one line per start and per end to a file that is not the store under test: one write with
O_APPEND each, so that lines of several processes never mix and outlive a `kill -9`.

| variable | |
|---|---|
| `LOAD_STORE` | store URL |
| `LOAD_JOBS`, `LOAD_PERIOD` | so many jobs, each every so many seconds |
| `LOAD_SPREAD` | seconds over which the fires of one period are spread; 0: all at once |
| `LOAD_ANCHOR` | seconds since 1970: no fire before. The same for all processes |
| `LOAD_KIND` | `coroutine`, `thread`, `blocking` (blocks the event loop) or `mixed` |
| `LOAD_BODY` | seconds a body takes |
| `LOAD_LONG` | seconds the tasks `long` and `block` take |
| `LOAD_LOG` | where to write |
| `LOAD_BUFFERED` | keep starts in memory and write them at the end: for benchmarks |
| `LOAD_NOTIFY` | `all`: watch all jobs, for a channel that takes everything; `taken out`: as if there were no outbox |
| `LOAD_PARENT` | end when this process is no longer the parent |

`FENCEPOST_*` are the scheduler's own settings.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost import Fire, Scheduler, every

Mark = Callable[[str, Fire], None]


class Load:
    def __init__(self, env: Any = os.environ) -> None:
        self.store = env["LOAD_STORE"]
        self.jobs = int(env.get("LOAD_JOBS", "0"))
        self.period = float(env.get("LOAD_PERIOD", "1"))
        self.spread = float(env.get("LOAD_SPREAD", self.period))
        self.anchor = datetime.fromtimestamp(float(env.get("LOAD_ANCHOR", "0")), UTC)
        self.kind = env.get("LOAD_KIND", "coroutine")
        self.body = float(env.get("LOAD_BODY", "0"))
        self.overlap = env.get("LOAD_OVERLAP", "skip")
        self.long = float(env.get("LOAD_LONG", "30"))
        self.log = env.get("LOAD_LOG", "")
        self.notify = env.get("LOAD_NOTIFY", "")
        self.buffered = bool(env.get("LOAD_BUFFERED"))
        self.parent = int(env.get("LOAD_PARENT", "0"))
        self._kept: list[tuple[str, str, int, str, float]] = []
        self._file: int | None = None

    def scheduler(self) -> Scheduler:
        scheduler = Scheduler(store=self.store)
        if self.notify == "taken out":
            from fencepost.store.rules import outbox

            outbox.started = lambda rows, at, record, fire: None
            outbox.ended = lambda rows, at, record, fire: record
        elif self.notify:
            from fencepost.notify import call, failed, late, lost, missed, no_success_for, recovered

            causes = failed | missed | lost | recovered | late("5m") | no_success_for("26h")
            scheduler.notify(call(lambda notice: None, name="nowhere"), on=causes)
        for number in range(self.jobs):
            # The first fire of job n lies one period after its anchor: never before LOAD_ANCHOR.
            offset = timedelta(seconds=self.spread * number / self.jobs - self.period)
            trigger = every(seconds=self.period, anchor=self.anchor + offset)
            scheduler.job(trigger, id=f"job{number:05}", overlap=self.overlap)(self._body(number))
        scheduler.task(self._blocking(self.long), id="block")
        scheduler.task(self._thread(self.long), id="long")
        scheduler.task(self._coroutine(0), id="quick")
        return scheduler

    def mark(self, what: str, fire: Fire) -> None:
        if self.buffered:
            if what == "start":
                # Not the fire itself: what is kept is looked through by the garbage collector again and again.
                self._kept.append((what, fire.key, fire.token, fire.replica, time.time()))
            return
        if self._file is None:
            self._file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(self._file, _line(what, fire.key, fire.token, fire.replica, time.time()))

    def flush(self) -> None:
        if self._kept:
            with open(f"{self.log}.{os.getpid()}", "wb") as file:
                file.writelines(_line(*kept) for kept in self._kept)

    # --- bodies -----------------------------------------------------------------------------------------

    def _body(self, number: int) -> Callable[..., Any]:
        kind = ("coroutine", "thread")[number % 2] if self.kind == "mixed" else self.kind
        return {"coroutine": self._coroutine, "thread": self._thread, "blocking": self._blocking}[kind](
            self.body
        )

    def _coroutine(self, seconds: float) -> Callable[..., Any]:
        async def body(fire: Fire) -> None:
            self.mark("start", fire)
            if seconds:
                await asyncio.sleep(seconds)
            self.mark("end", fire)

        return body

    def _thread(self, seconds: float) -> Callable[..., Any]:
        def body(fire: Fire) -> None:
            self.mark("start", fire)
            time.sleep(seconds)
            self.mark("end", fire)

        return body

    def _blocking(self, seconds: float) -> Callable[..., Any]:
        async def body(fire: Fire) -> None:
            self.mark("start", fire)
            time.sleep(seconds)
            self.mark("end", fire)

        return body


def _line(what: str, key: str, token: int, replica: str, wall: float) -> bytes:
    steady = time.monotonic()
    return f"{what} {key} {token} {os.getpid()} {replica} {wall:.6f} {steady:.6f}\n".encode()


def end_with(parent: int) -> None:
    """A harness that was itself killed must leave nobody behind."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(2)
        os._exit(3)

    if parent:
        threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    faulthandler.register(signal.SIGUSR1)
    load = Load()
    if not load.buffered:
        logging.getLogger("fencepost").setLevel(logging.INFO)
        logging.getLogger("fencepost").addFilter(no_ordinary_runs)
    end_with(load.parent)
    load.scheduler().run()
    load.flush()


def no_ordinary_runs(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("succeeded")


if __name__ == "__main__":
    main()
