"""A PostgreSQL server that follows another by streaming replication, asynchronously, until it is promoted."""

from __future__ import annotations

import time

from tests.servers.postgresql import PostgresServer

PATIENCE = 30.0


class Standby(PostgresServer):
    def __init__(
        self, primary: PostgresServer, *, same_port: bool = False, **settings: str | int | bool
    ) -> None:
        """`same_port`: as the primary's, at another address of this machine (Linux)."""
        super().__init__(primary.version, None, settings)
        self._primary = primary
        self._same_port = same_port

    @property
    def host(self) -> str:
        return "127.0.0.2" if self._same_port else super().host

    @property
    def port(self) -> int:
        return self._primary.port if self._same_port else super().port

    def create_data(self) -> None:
        self._borrow_binaries()
        primary = ["--host", self._primary.host, "--port", str(self._primary.port), "--username=postgres"]
        how = ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        self._run([str(self._binaries / "pg_basebackup"), *primary, *how, "--pgdata", str(self.data)])
        if not self.data.exists():
            raise RuntimeError(f"no copy was made. The log ends:\n{self.told()}")

    def ready(self) -> bool:
        return self._status() in ("ready", "standby")

    def promote(self) -> None:
        self.execute("select pg_promote(true, 30)")

    def wait_in_step(self) -> None:
        """Until it has replayed all that the primary has written."""
        import psycopg

        with psycopg.connect(self._primary.url, autocommit=True) as primary:
            row = primary.execute("select pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(self.url, autocommit=True) as here:
            behind = "select pg_last_wal_replay_lsn() < %s::pg_lsn"
            while here.execute(behind, row).fetchone() != (False,):
                assert time.monotonic() < deadline, f"{self} does not follow"
                time.sleep(0.02)
