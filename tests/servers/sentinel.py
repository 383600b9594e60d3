"""A primary, a follower and three Sentinels that watch over them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.proxy import Proxy
from tests.servers.redislike import Option, RedisServer, valkey

SERVICE = "main"
DOWN_AFTER = 500
"""Milliseconds after which a server that does not answer is taken for down."""
PATIENCE = 90.0
"""Seconds. Sentinels that were kept waiting for the processor do nothing for 30 s (their tilt mode)."""


class SentinelServer(RedisServer):
    """`watched_at`: the port under which it names the server, where that is another than the server's own."""

    def __init__(
        self,
        binary: Path,
        watched: RedisServer,
        quorum: int,
        password: str = "",
        watched_at: int | None = None,
    ) -> None:
        super().__init__(binary, None, {"requirepass": password} if password else {})
        self._watched = watched
        self._watched_at = watched_at or watched.port
        self._quorum = quorum

    def create_data(self) -> None:
        super().create_data()
        watched, password = self._watched, self._watched.password
        lines = [
            f"port {self.port}",
            f"bind {self.host}",
            f"dir {self.data}",
            f"sentinel monitor {SERVICE} {watched.host} {self._watched_at} {self._quorum}",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER}",
            f"sentinel failover-timeout {SERVICE} 2000",
            *([f"sentinel auth-pass {SERVICE} {password}"] if password else []),
            *(
                [f"requirepass {self.password}", f"sentinel sentinel-pass {self.password}"]
                if self.password
                else []
            ),
        ]
        (self.data / "sentinel.conf").write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [str(self._binary), str(self.data / "sentinel.conf"), "--sentinel"]

    def ask(self, *commands: str) -> bytes:
        """It knows no QUIT: that nothing more will be asked is told by the connection."""
        login = [f"AUTH {self.password}"] if self.password else []
        with socket.create_connection((self.host, self.port), timeout=5) as connection:
            connection.sendall("".join(f"{command}\r\n" for command in (*login, *commands)).encode())
            connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def primary(self) -> int:
        """The port of the server that it takes for the primary."""
        return int(self.ask(f"SENTINEL get-master-addr-by-name {SERVICE}").split(b"\r\n")[-2])

    def knows(self, others: int) -> bool:
        """Whether it has found the follower and so many other Sentinels."""
        told = self.ask("INFO sentinel")
        return b"slaves=1,sentinels=%d" % (others + 1) in told


@dataclass(frozen=True)
class Watched:
    servers: tuple[RedisServer, RedisServer]
    """The first primary, and its follower."""
    sentinels: tuple[SentinelServer, ...]
    proxy: Proxy | None = None
    """In front of the first primary: what the Sentinels name as its address."""

    @property
    def url(self) -> str:
        login = f":{self.servers[0].password}@" if self.servers[0].password else ""
        hosts = ",".join(f"{each.host}:{each.port}" for each in self.sentinels)
        own = self.sentinels[0].password
        return f"redis+sentinel://{login}{hosts}/{SERVICE}/0" + (f"?sentinel_password={own}" if own else "")

    def wait_for_primary(self, server: RedisServer) -> None:
        """Until all Sentinels have found out that it is the primary, and it is."""
        wait_until(
            lambda: (
                all(each.primary() == server.port for each in self.sentinels if each.alive)
                and b"role:master" in server.ask("INFO replication")
            ),
            f"{server} is promoted",
        )


@contextmanager
def watched(sentinel_password: str = "", proxied: bool = False, **options: Option) -> Iterator[Watched]:
    """`options`: of both servers. The follower keeps what it has received when it is stopped: it can be made stale."""
    with ExitStack() as stack:
        config: Any = {"appendonly": True, "repl_diskless_sync_delay": 0, **options}
        if "requirepass" in config:
            config["masterauth"] = config["requirepass"]
        primary = stack.enter_context(valkey(**config))
        proxy = stack.enter_context(Proxy(primary.url)) if proxied else None
        port = proxy.port if proxy else primary.port
        follower = stack.enter_context(valkey(replicaof=f"{primary.host} {port}", **config))
        sentinels = tuple(
            stack.enter_context(SentinelServer(primary.binary, primary, 2, sentinel_password, port))
            for _ in range(3)
        )
        wait_until(lambda: all(each.knows(2) for each in sentinels), "the Sentinels know each other")
        wait_until(lambda: is_in_step(follower), "the follower is in step")
        yield Watched((primary, follower), sentinels, proxy)


def is_in_step(follower: RedisServer) -> bool:
    return b"master_link_status:up" in follower.ask("INFO replication")


def wait_until(condition: object, what: str, seconds: float = PATIENCE) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
