"""What every peer is asked to do, and how its jobs note what they did.

Runs in the peer's environment: standard library only.

Job `n` is due each `period` seconds, on the whole second `n % period`, so that `jobs / period` fires fall due together
each second: cron has no finer times. `spread` distributes them over the second instead, for those that can.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path


@dataclass
class Work:
    url: str
    jobs: int
    period: int
    begin: float
    """Seconds since 1970: peers whose schedules have a start time do not fire before."""
    folder: str
    spread: bool = False
    parent: int = 0
    _notes: int | None = field(default=None, repr=False)

    def to_json(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if not name.startswith("_")})

    # --- the calendar -----------------------------------------------------------------------------------

    def numbers(self) -> Iterator[int]:
        return iter(range(self.jobs))

    def offset(self, job: int) -> float:
        """Seconds after a multiple of the period at which the job is due."""
        return job * self.period / self.jobs if self.spread else job % self.period

    def first(self, job: int) -> datetime:
        """The first due time that is not before `begin`."""
        missing = (self.offset(job) - self.begin) % self.period
        return datetime.fromtimestamp(self.begin + missing, UTC)

    @property
    def every(self) -> timedelta:
        return timedelta(seconds=self.period)

    def seconds(self, job: int) -> str:
        """The field for seconds in a cron expression."""
        if self.period == 1:
            return "*"
        return ",".join(str(second) for second in range(int(self.offset(job)), 60, self.period))

    # --- what is noted ----------------------------------------------------------------------------------

    def note(self, job: int | str, due: float | None = None, started: float | None = None) -> None:
        """A start. Call it first thing in the body. One write to a file of this process: it survives `kill -9`."""
        if started is None:
            started = time.time()
        if self._notes is None:
            path = Path(self.folder) / f"notes.{os.getpid()}"
            self._notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(self._notes, f"{job} {'-' if due is None else f'{due:.6f}'} {started:.6f}\n".encode())

    def leads(self) -> None:
        """This process leads from now on: it is the one to kill."""
        (Path(self.folder) / "leader").write_text(str(os.getpid()))

    def ready(self) -> None:
        (Path(self.folder) / f"ready.{os.getpid()}").touch()

    def end_with_parent(self) -> None:
        """A benchmark that was itself killed leaves no process behind."""

        def watch() -> None:
            while os.getppid() == self.parent:
                time.sleep(2)
            os._exit(3)

        if self.parent:
            threading.Thread(target=watch, daemon=True).start()
