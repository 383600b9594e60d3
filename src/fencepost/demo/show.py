"""Plays the plot, draws ten times a second, and leaves nothing behind: no process, and no file unless asked to."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fencepost.demo.account import Account, reckon
from fencepost.demo.plot import Plot, Stage
from fencepost.demo.processes import Processes
from fencepost.demo.watch import Watch
from fencepost.store.sqlite import SqliteStore

T = TypeVar("T")

FRAME = 0.1
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class View(Protocol):
    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def draw(self, stage: Stage, watch: Watch) -> None: ...


class Interrupted(Exception):
    """Asked to end while it was ending already."""


@dataclass
class Folder:
    path: Path
    keep: bool


@contextmanager
def temporary_folder(keep: bool) -> Iterator[Folder]:
    """Gone at the end, unless somebody has set `keep`: what failed must be looked into."""
    folder = Folder(Path(tempfile.mkdtemp(prefix="fencepost-")), keep)
    try:
        yield folder
    finally:
        if not folder.keep:
            shutil.rmtree(folder.path, ignore_errors=True)


@dataclass
class Show:
    folder: Path
    view: View
    replicas: int
    seconds: float | None
    interrupted_by: int | None = None
    _act: asyncio.Task[Any] | None = None
    _stage: Stage = field(default_factory=Stage)

    @property
    def database(self) -> Path:
        return self.folder / "demo.db"

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.database}"

    def run(self) -> Account:
        return asyncio.run(self._run())

    async def _run(self) -> Account:
        loop = asyncio.get_running_loop()
        for number in ENDING_SIGNALS:
            loop.add_signal_handler(number, self._interrupt, number)
        store = SqliteStore(self.database)
        await store.open()
        try:
            with Processes(self.folder, self.store_url) as processes, self.view:
                watch = Watch(store)
                plot = Plot(store, processes, watch, self._stage, self.replicas, self.seconds)
                until = await self._play(plot, watch)
            return await reckon(store, processes, self._stage, until)
        finally:
            await store.close()

    async def _play(self, plot: Plot, watch: Watch) -> Any:
        for act in (plot.begin, plot.play):
            if self.interrupted_by is None:
                await self._perform(act(), watch)
        why = "The time is up." if self.interrupted_by is None else "Stopping."
        ended, until = await self._perform(plot.end(why), watch)
        if not ended:
            raise Interrupted
        return until

    async def _perform(self, act: Coroutine[Any, Any, T], watch: Watch) -> tuple[bool, T | None]:
        """Whether it came to its end, and what it said."""
        self._act = asyncio.create_task(act)
        try:
            while not self._act.done():
                await watch.look()
                self.view.draw(self._stage, watch)
                await asyncio.wait([self._act], timeout=FRAME)
            return (False, None) if self._act.cancelled() else (True, self._act.result())
        finally:
            self._act.cancel()

    def _interrupt(self, number: int) -> None:
        """The first time: stop gracefully. Again: at once."""
        if self.interrupted_by is None:
            self.interrupted_by = number
        if self._act is not None:
            self._act.cancel()
