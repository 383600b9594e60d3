"""Private servers for tests, benchmarks and the soak, and a proxy that does them harm.

    with valkey(appendonly=True) as server:
        server.url, server.pid, server.log
        server.stop(), server.kill(), server.start(), server.restart(keep_data=False)

    with postgres(version=18, synchronous_commit="off") as server, server.database() as url: ...

Each is a real server in a temporary folder, on a free port of the loopback interface, and ends with the process
that started it, whatever becomes of that (see `keeper.py`). Fixtures that share one server of a kind among the tests
of a process are in `fixtures.py`.
"""

from tests.servers.clocks import Clock, clock
from tests.servers.mariadb import MariaServer, mariadb
from tests.servers.postgresql import PostgresServer, postgres
from tests.servers.process import Server, ServerMissing
from tests.servers.proxy import Proxy, Rule, cut_after, cut_before, delay, half_open, hold, reset, sliced
from tests.servers.rabbitmq import RabbitServer, rabbitmq
from tests.servers.redislike import RedisServer, redis, valkey

__all__ = [
    "Clock",
    "MariaServer",
    "PostgresServer",
    "Proxy",
    "RabbitServer",
    "RedisServer",
    "Rule",
    "Server",
    "ServerMissing",
    "clock",
    "cut_after",
    "cut_before",
    "delay",
    "half_open",
    "hold",
    "mariadb",
    "postgres",
    "rabbitmq",
    "redis",
    "reset",
    "sliced",
    "valkey",
]
