"""PgBouncer in transaction mode, before a PostgreSQL server: Debian's (`make pgbouncer`), or the system's."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.servers.postgresql import NOBODY, PostgresServer
from tests.servers.process import Server, ServerMissing

UNPACKED = Path(sys.prefix) / "pgbouncer"


def pgbouncer(before: PostgresServer, **settings: str | int) -> PgBouncer:
    """`settings`: as in pgbouncer.ini."""
    return PgBouncer(before, settings)


class PgBouncer(Server):
    """Whoever connects is `postgres` there. A transaction is with whichever server process is free."""

    def __init__(self, before: PostgresServer, settings: Mapping[str, str | int]) -> None:
        super().__init__()
        binary, self._libraries = _found()
        self.user = NOBODY if os.geteuid() == 0 else None  # it refuses to run as root
        self._binary = binary
        self._before = before
        self._settings = settings

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@{self.host}:{self.port}/{database}"

    def through(self, url: str) -> str:
        """The URL of a database of the server, through the pooler."""
        return url.replace(f":{self._before.port}/", f":{self.port}/")

    def create_data(self) -> None:
        super().create_data()
        if self._libraries:  # copied: a virtual environment in root's home is closed to `nobody`
            for path in (self._binary, *self._libraries):
                shutil.copy(path, self.folder)
            self._binary = self.folder / self._binary.name
            self._env["LD_LIBRARY_PATH"] = str(self.folder)
        self._write(self._before)
        self.data.chmod(0o755)

    def lead_to(self, server: PostgresServer) -> None:
        """From now on new connections are to this server. Clients stay connected."""
        self._write(server)
        os.kill(self.pid, signal.SIGHUP)

    def _write(self, server: PostgresServer) -> None:
        settings = {
            "listen_addr": self.host,
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": 3,
            "max_client_conn": 200,
            "server_lifetime": 3600,
            **self._settings,
        }
        lines = [
            "[databases]",
            f"* = host={server.host} port={server.port} user=postgres",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        (self.data / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        (self.data / "pgbouncer.ini").chmod(0o644)

    def command(self) -> list[str]:
        return [str(self._binary), str(self.data / "pgbouncer.ini")]

    def ready(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self.url, autocommit=True, prepare_threshold=None) as connection:
                connection.execute("select 1")
        except psycopg.OperationalError:
            return False
        return self.alive

    def stop(self) -> None:
        self._end_by(signal.SIGTERM)


def _found() -> tuple[Path, list[Path]]:
    """The program, and the libraries that came with it."""
    installed = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if installed:
        return Path(installed), []
    unpacked = UNPACKED / "usr/sbin/pgbouncer"
    if unpacked.exists():
        return unpacked, list((UNPACKED / "usr/lib").glob("*-linux-*/*.so*"))
    raise ServerMissing("PgBouncer is not installed: make pgbouncer")
