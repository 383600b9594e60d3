"""MariaDB: the machine's own, or Debian's as `make mariadb` unpacks it into the virtual environment."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.postgresql import NOBODY, may_run
from tests.servers.process import Server, ServerMissing

UNPACKED = Path(sys.prefix) / "mariadb" / "usr"
PLACES = (UNPACKED, Path("/usr"), Path("/usr/local"), Path("/opt/homebrew"))
TEMPLATE = Path(sys.prefix) / "mariadb-data"
"""An empty data folder. To make one takes seconds, to copy it hundredths of one."""
CARELESS = {"innodb_flush_method": "nosync", "innodb_flush_log_at_trx_commit": 1}
SMALL = {
    "innodb_log_file_size": "16M",
    "innodb_buffer_pool_size": "64M",
    "performance_schema": "OFF",
    "ssl": "OFF",
}


def mariadb(*, env: Mapping[str, str] | None = None, **settings: str | int) -> MariaServer:
    """`settings`: as in my.cnf. By default nothing waits for the disk (`innodb_flush_method="fsync"` does): a crash of
    the server costs nothing, one of the machine would. As root it runs as `nobody`."""
    return MariaServer(place_of_binaries(), env, settings)


class MariaServer(Server):
    """Anybody on the loopback interface may log in as `root`, without a password."""

    def __init__(
        self, binaries: Path, env: Mapping[str, str] | None, settings: Mapping[str, str | int]
    ) -> None:
        super().__init__(env)
        self.user = NOBODY if os.geteuid() == 0 else None
        self._binaries = binaries
        self._settings = {**CARELESS, **SMALL, **settings}
        self._numbers = itertools.count(1)
        if binaries == UNPACKED:  # it needs a library or two that the machine may lack
            self._env["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, (UNPACKED / "lib").glob("*-linux-*")))

    @property
    def url(self) -> str:
        return self.url_of("test")

    def url_of(self, database: str) -> str:
        return f"mysql://root@{self.host}:{self.port}/{database}"

    def command(self) -> list[str]:
        fixed = {
            "basedir": self._binaries,
            "datadir": self.data,
            "port": self.port,
            "bind_address": self.host,
            "socket": self.folder / "socket",
            "pid_file": self.folder / "pid",
        }
        return [str(self._server), "--no-defaults", *_options({**self._settings, **fixed})]

    def create_data(self) -> None:
        if self.user is not None and not may_run(self._server, self.user):
            self._binaries = _copied(self._binaries, self.folder)
        with open(f"{TEMPLATE}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (TEMPLATE / "ready").exists():
                self._make_template()
        shutil.copytree(TEMPLATE / "data", self.data)
        if self.user is not None:
            for path in (self.data, *self.data.rglob("*")):
                os.chown(path, self.user, self.user)

    def _make_template(self) -> None:
        options = {**SMALL, **CARELESS, "basedir": self._binaries, "datadir": self.data}
        options["auth_root_authentication_method"] = "normal"
        script = str(self._binaries / "bin" / "mariadb-install-db")
        self._run([script, "--no-defaults", "--force", "--skip-name-resolve", *_options(options)])
        if not (self.data / "mysql").exists():
            raise RuntimeError(f"no data folder was made. The log ends:\n{self.told()}")
        (self.data / "test").mkdir(exist_ok=True)
        (self.data / "test" / "db.opt").write_text(
            "default-character-set=utf8mb4\ndefault-collation=utf8mb4_general_ci\n"
        )
        shutil.rmtree(TEMPLATE, ignore_errors=True)
        shutil.copytree(self.data, TEMPLATE / "data")
        (TEMPLATE / "ready").touch()
        shutil.rmtree(self.data)

    def ready(self) -> bool:
        try:
            return (self.folder / "pid").read_text().strip() == str(self.pid) and bool(self._answers())
        except OSError:
            return False

    def _answers(self) -> bool:
        pymysql = _driver()
        try:
            self._connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def stop(self) -> None:
        self._end_by(signal.SIGTERM)

    def execute(self, *statements: str) -> list[Any]:
        """In a connection of its own; the rows that the last one gives."""
        connection = self._connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def _connect(self) -> Any:
        return _driver().connect(
            host=self.host, port=self.port, user="root", autocommit=True, connect_timeout=5
        )

    @contextmanager
    def database(self) -> Iterator[str]:
        """An empty database. Gives its URL."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"create database {name}")
        try:
            yield self.url_of(name)
        finally:
            self.execute(f"drop database {name}")

    @property
    def _server(self) -> Path:
        return next(
            path
            for path in (self._binaries / "sbin" / "mariadbd", self._binaries / "bin" / "mariadbd")
            if path.exists()
        )


def place_of_binaries() -> Path:
    for place in PLACES:
        if (place / "bin" / "mariadb-install-db").exists() and any(
            (place / folder / "mariadbd").exists() for folder in ("sbin", "bin")
        ):
            return place
    raise ServerMissing("no MariaDB is found: `make mariadb` unpacks Debian's, or install mariadb-server")


def _options(settings: Mapping[str, object]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


def _driver() -> Any:
    try:
        import pymysql
    except ImportError as error:
        raise ServerMissing("this needs PyMySQL: pip install 'fencepost[mysql]'") from error
    return pymysql


def _copied(binaries: Path, folder: Path) -> Path:
    """A virtual environment in root's home is closed to `nobody`."""
    copy = folder / "usr"
    if not copy.exists():
        shutil.copytree(binaries, copy, symlinks=True, ignore=shutil.ignore_patterns("doc", "man"))
    return copy
