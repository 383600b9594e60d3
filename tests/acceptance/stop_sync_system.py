"""The system of `examples/stop_sync` in a folder of its own: in this process, or as the processes that people start."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fencepost import Scheduler
from fencepost.model import FireRecord
from fencepost.pipeline.status import read_status
from stop_sync.database import Database
from stop_sync.pipeline import NAME
from stop_sync.service import scheduler_of
from stop_sync.settings import Settings
from stop_sync.source_server import SourceServer
from stop_sync.tables import DYNAMIC, KEYS, STATIC
from tests.cluster.harness import Reader
from tests.web.serving import STARTING, ServerProcess, a_port, eventually

PATIENCE = 20.0
"""Seconds for what takes one or two where nobody else is busy."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "stop_sync"
RUNNING = 90.0
"""Seconds for a process that starts and then runs the whole pipeline, on a busy machine."""
STOPS = 120
"""Of the invented country: enough for every kind of row."""
QUICK = {
    "STOP_SYNC_PRESENCE_SECONDS": "2",
    "PIPELINE_LOCK_HEARTBEAT_SECONDS": "0.5",
    "STATE_BACKEND": "sqlite",
    "STOP_SYNC_RETRY_SECONDS": "0.05",
}
OURS = ("FENCEPOST_", "PIPELINE_", "STATE_", "STOP_SYNC_")


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class System:
    def __init__(self, folder: Path, sources: SourceServer, **variables: object) -> None:
        self.folder = folder
        self.sources = sources
        self.variables = {
            **QUICK,
            "STOP_SYNC_DATA_DIR": str(folder / "data"),
            "STOP_SYNC_ATLAS_URL": sources.url("register"),
            "STOP_SYNC_GTFS_URL": sources.url("gtfs"),
            "STOP_SYNC_OSM_URL": sources.url("osm"),
            **{name: str(value) for name, value in variables.items()},
        }
        self._ending = ExitStack()
        self._reader: Reader | None = None
        self._outsider: Scheduler | None = None

    def __enter__(self) -> System:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def beginning_with(self, imported: System) -> System:
        """As another has left it: files, database and, if it is the same kind, store."""
        shutil.copytree(imported.data, self.data)
        return self

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def settings(self, **variables: object) -> Settings:
        return Settings.of({**self.variables, **{name: str(value) for name, value in variables.items()}})

    def scheduler(self, **variables: object) -> Scheduler:
        return scheduler_of(self.settings(**variables))

    @contextmanager
    def service(self, **variables: object) -> Iterator[Scheduler]:
        """On a thread of this process."""
        scheduler = self.scheduler(**variables)
        joined, leave = threading.Event(), threading.Event()

        async def serve() -> None:
            async with scheduler:
                joined.set()
                await asyncio.to_thread(leave.wait)

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        try:
            assert joined.wait(PATIENCE)
            yield scheduler
        finally:
            leave.set()
            thread.join(PATIENCE)
        assert not thread.is_alive(), "the service did not end"

    def ran(self, variables: dict[str, object] | None = None, **args: Any) -> FireRecord:
        """One run in this process."""
        with self.service(**(variables or {})) as scheduler:
            return self.ended(scheduler.sync.trigger(NAME, args=args or None).key)

    # --- processes -----------------------------------------------------------------------------------------

    def start(self, *command: str) -> ServerProcess:
        """`python -m` this; `{port}` in it is a free one. It may still be starting. Ended with the system."""
        log = self.folder / f"process-{len(list(self.folder.glob('process-*')))}.log"
        port = self._ending.enter_context(a_port())
        words = [word.format(port=port) for word in command]
        output = self._ending.enter_context(log.open("wb"))
        popen = self._popen(words, stdout=output, stderr=output)
        return ServerProcess(popen, f"http://127.0.0.1:{port}", log)

    def started_service(self) -> ServerProcess:
        service = self.start("stop_sync.service")
        eventually(lambda: self.has_joined(service), STARTING)
        return service

    def has_joined(self, service: ServerProcess) -> bool:
        assert service.popen.poll() is None, service.told()
        if self.variables["STATE_BACKEND"] == "sqlite" and not (self.data / "runtime/fencepost.db").exists():
            return False
        joined = service.popen.pid in {replica.pid for replica in self.reader.roster().replicas}
        return joined and bool(self.reader.ask(lambda store: store.jobs([NAME])))

    def by_hand(self, *words: str) -> Callable[[], Ended]:
        """`python -m stop_sync.job_runner`; call the answer to wait for its end."""
        pipe = subprocess.PIPE
        popen = self._popen(["stop_sync.job_runner", *words], stdout=pipe, stderr=pipe)

        def end() -> Ended:
            out, err = popen.communicate(timeout=RUNNING)
            return Ended(popen.returncode, out.decode(), err.decode())

        return end

    def _popen(self, words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        popen = subprocess.Popen(
            [sys.executable, "-m", *words],
            env={**inherited, **self.variables, "PYTHONPATH": str(EXAMPLE), "FENCEPOST_READY_DELAY": "0"},
            cwd=self.folder,
            **options,
        )
        self._ending.callback(popen.wait, PATIENCE)
        self._ending.callback(popen.kill)
        return popen

    # --- from outside --------------------------------------------------------------------------------------

    @property
    def reader(self) -> Reader:
        if self._reader is None:
            self._reader = Reader(self.settings().store_url)
            self._ending.callback(self._reader.close)
        return self._reader

    def status(self) -> dict[str, Any]:
        return self.reader.ask(lambda store: read_status(store, NAME))

    def kept(self) -> Any:
        """The durable record of the last success."""
        return self.reader.ask(lambda store: store.jobs([NAME]))[0].kept

    def trigger(self, **args: Any) -> str:
        """From this process, which takes no part; the key of the fire."""
        if self._outsider is None:
            self._outsider = Scheduler(store=self.settings().store_url)
            self._ending.callback(lambda outsider: asyncio.run(outsider.stop()), self._outsider)
        return self._outsider.sync.trigger(NAME, args=args or None).key

    def ended(self, key: str, seconds: float = PATIENCE) -> FireRecord:
        """The fire, when it has."""

        def final() -> FireRecord | None:
            fire = self.reader.fire(key)
            return fire if fire is not None and fire.state.final else None

        found: FireRecord = eventually(final, seconds)
        return found

    def until(
        self, condition: Callable[[dict[str, Any]], object], seconds: float = PATIENCE
    ) -> dict[str, Any]:
        """The first status of which this holds."""
        deadline = time.monotonic() + seconds
        while not condition(says := self.status()):
            assert time.monotonic() < deadline, f"not within {seconds} s: {says}"
            time.sleep(0.02)
        return says

    def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        """All that the database has."""
        with Database(self.settings().database_url).reading() as ask:
            return {
                table: ask(f"select * from {table} order by {KEYS[table]}", ())
                for table in (*STATIC, *DYNAMIC)
            }


def phases(fire: FireRecord) -> dict[str, str]:
    """What became of each, in order."""
    assert fire.progress is not None
    return {each["name"]: each["outcome"] for each in fire.progress["pipeline"]["phases"]}
