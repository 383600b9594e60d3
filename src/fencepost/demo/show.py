"""Plays a plot, draws ten times a second, and leaves nothing behind: no process, and no file unless asked to."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from fencepost.demo import diary
from fencepost.demo.account import Account, reckon
from fencepost.demo.director import Stage
from fencepost.demo.plot import Plot
from fencepost.demo.processes import Replicas
from fencepost.demo.watch import Watch
from fencepost.demo.words import PAUSED
from fencepost.store.base import Store
from fencepost.store.sqlite import SqliteStore

A = TypeVar("A")
T = TypeVar("T")

FRAME = 0.1
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class View(Protocol):
    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def draw(self, stage: Stage, watch: Watch) -> None: ...


class Acts(Protocol):
    async def begin(self) -> None: ...

    async def play(self) -> None: ...

    async def end(self, why: str) -> datetime:
        """The moment up to which all must be accounted for."""
        ...


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
class Show(ABC, Generic[A]):
    folder: Path
    view: View
    seconds: float | None
    interrupted_by: int | None = None
    stage: Stage = field(default_factory=Stage)
    _act: asyncio.Task[Any] | None = None

    @property
    @abstractmethod
    def database(self) -> Path:
        """Of the store."""

    @abstractmethod
    def replicas(self) -> Replicas: ...

    @abstractmethod
    def plot(self, store: Store, replicas: Replicas, watch: Watch) -> Acts: ...

    @abstractmethod
    async def reckoned(self, store: Store, replicas: Replicas, until: datetime) -> A: ...

    def watch(self, store: Store) -> Watch:
        return Watch(store)

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.database}"

    def run(self) -> A:
        return asyncio.run(self._run())

    async def _run(self) -> A:
        loop = asyncio.get_running_loop()
        for number in ENDING_SIGNALS:
            loop.add_signal_handler(number, self._interrupt, number)
        store = SqliteStore(self.database)
        await store.open()
        try:
            with self.replicas() as replicas, self.view:
                watch = self.watch(store)
                until = await self._play(self.plot(store, replicas, watch), watch)
            return await self.reckoned(store, replicas, until)
        finally:
            await store.close()

    async def _play(self, acts: Acts, watch: Watch) -> datetime:
        for act in (acts.begin, acts.play):
            if self.interrupted_by is None:
                await self._perform(act(), watch)
        why = "The time is up." if self.interrupted_by is None else "Stopping."
        ended, until = await self._perform(acts.end(why), watch)
        if not ended or until is None:
            raise Interrupted
        return until

    async def _perform(self, act: Coroutine[Any, Any, T], watch: Watch) -> tuple[bool, T | None]:
        """Whether it came to its end, and what it said."""
        self._act = asyncio.create_task(act)
        try:
            while not self._act.done():
                await watch.look()
                self.view.draw(self.stage, watch)
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


@dataclass
class Cluster(Show[Account]):
    """Replicas that run a handful of jobs, of which each writes down for itself when it starts and ends."""

    count: int = 3

    @property
    def database(self) -> Path:
        return self.folder / "demo.db"

    @property
    def _diary(self) -> Path:
        return self.folder / "starts.log"

    def replicas(self) -> Replicas:
        environment = {"FENCEPOST_STORE": self.store_url, diary.PATH: str(self._diary)}
        return Replicas(self.folder, environment)

    def watch(self, store: Store) -> Watch:
        return Watch(store, paused=PAUSED)

    def plot(self, store: Store, replicas: Replicas, watch: Watch) -> Plot:
        return Plot(store, replicas, watch, self.stage, self.count, self.seconds)

    async def reckoned(self, store: Store, replicas: Replicas, until: datetime) -> Account:
        return await reckon(store, replicas, self._diary, self.stage, until)
