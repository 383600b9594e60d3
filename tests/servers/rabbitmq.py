"""RabbitMQ, where the system has it (Debian: rabbitmq-server): a node of its own, with its own name, ports and folders.

Erlang's nodes find each other through a daemon, epmd. This one has an epmd of its own as well, which ends with it.
"""

from __future__ import annotations

import shlex
import signal
import socket
from pathlib import Path

from tests.servers.ports import HOST, Port
from tests.servers.process import Server, ServerMissing

SCRIPTS = Path("/usr/lib/rabbitmq/bin")
"""Not those in /usr/sbin, which change to the system's own user and node."""
HELLO = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"


def rabbitmq() -> RabbitServer:
    script = SCRIPTS / "rabbitmq-server"
    if not script.exists():
        raise ServerMissing(f"RabbitMQ is not installed ({script} is missing)")
    return RabbitServer(script)


class RabbitServer(Server):
    """Queues that Celery declares are durable, and its messages persistent: they outlive a restart."""

    patience = 120.0
    """It takes seconds to start on an idle machine."""

    def __init__(self, script: Path) -> None:
        super().__init__()
        self._script = script
        self._more: list[Port] = []

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}//"

    def create_data(self) -> None:
        super().create_data()
        self._more = self._more or [Port(), Port()]
        epmd, nodes = self._more
        self._env |= {
            "HOME": str(self.folder),  # of the cookie
            "RUNNING_UNDER_SYSTEMD": "1",  # no shell around the server: a signal reaches the server itself
            "ERL_EPMD_PORT": str(epmd.number),
            "RABBITMQ_NODENAME": f"fp{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(nodes.number),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
        }

    def command(self) -> list[str]:
        epmd = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "epmd",
            "-port",
            str(self._more[0].number),
            "-address",
            HOST,
        ]
        return ["sh", "-c", f"{shlex.join(epmd)} & exec {shlex.quote(str(self._script))}"]

    def ready(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=5) as connection:
                connection.sendall(HELLO)
                return connection.recv(1) == METHOD_FRAME
        except OSError:
            return False

    def stop(self) -> None:
        self._end_by(signal.SIGTERM, self.patience)

    def close(self) -> None:
        super().close()
        for port in self._more:
            port.release()
