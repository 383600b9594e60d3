"""Real processes. Use as a context manager: whatever happens, each one is ended by its id."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fencepost.clock import SystemClock
from fencepost.demo import diary

LAST_WORDS = 12
"""Lines of a log that are shown where a replica ended by itself."""


@dataclass(eq=False)
class Process:
    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    ended_by: str = ""
    """kill -9 or SIGTERM, if by us."""
    ended_at: float = 0.0
    """Seconds since 1970 at which it got the signal."""

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    @property
    def code(self) -> int | None:
        return self.popen.poll()

    def kill(self) -> None:
        self._ended("kill -9")
        self.popen.kill()

    def terminate(self) -> None:
        self._ended("SIGTERM")
        self.popen.terminate()

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LAST_WORDS:])

    def _ended(self, by: str) -> None:
        if not self.ended_by:
            self.ended_by, self.ended_at = by, SystemClock().wall().timestamp()


@dataclass
class Processes:
    folder: Path
    environment: dict[str, str]
    """Added to that of this process, but for its settings of Fencepost."""
    all: list[Process] = field(default_factory=list)

    def start(self, name: str, *words: str) -> Process:
        """`python -m …`, with its output in a log of its own."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            popen = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=self.folder,  # no fencepost.toml of the user's reaches it
                env=self._environment(name),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # Ctrl-C is ours to handle
            )
        process = Process(name, popen, log)
        self.all.append(process)
        return process

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.all if process.alive]

    def of(self, pid: int) -> Process | None:
        return next((process for process in self.all if process.pid == pid), None)

    @property
    def failed(self) -> list[Process]:
        """Ended by themselves, or asked to and not with 0."""
        return [
            process
            for process in self.all
            if process.ended_by != "kill -9"
            and process.code is not None
            and (process.code or not process.ended_by)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.alive:
            process.kill()
        for process in self.all:
            process.popen.wait()

    def _environment(self, name: str) -> dict[str, str]:
        """Replicas are named by their host name."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("FENCEPOST_")}
        return {**inherited, **self.environment, "POD_NAME": name, diary.PARENT: str(os.getpid())}


class Replicas(Processes):
    """Named r1, r2, … in the order of their start."""

    command: tuple[str, ...] = ("fencepost", "run", "fencepost.demo.app:scheduler")
    """As anybody would start one."""
    started = 0

    def join(self) -> Process:
        self.started += 1
        return self.start(f"r{self.started}", *self.command)
