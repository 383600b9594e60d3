"""The private servers themselves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from redis import Redis

from tests.servers import (
    PostgresServer,
    RedisServer,
    Server,
    ServerMissing,
    clock,
    postgres,
    postgresql,
    redis,
    valkey,
)
from tests.servers.keeper import identity
from tests.servers.ports import Port
from tests.servers.process import package_folder

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
KINDS: dict[str, Callable[..., Server]] = {
    "valkey": lambda **options: valkey(appendonly=True, **options),
    "redis": lambda **options: redis(appendonly=True, **options),
    "postgres 16": lambda **options: postgres(16, **options),
    "postgres 18": lambda **options: postgres(18, **options),
    "postgres system": lambda **options: postgres("system", **options),
}


SLOW = {"postgres 18", "postgres system"}


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.slow) if kind in SLOW else kind for kind in KINDS]
)
def kind(request: pytest.FixtureRequest) -> Callable[..., Server]:
    """Makes a server that keeps its data."""
    if request.param == "redis":
        request.getfixturevalue("redis_server")  # which may skip
    make = KINDS[request.param]
    if request.param == "postgres system":
        try:
            make()
        except ServerMissing as reason:
            pytest.skip(str(reason))
    return make


def write(server: Server) -> None:
    if isinstance(server, RedisServer):
        with Redis.from_url(server.url) as client:
            client.set("kept", "yes")
    else:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 'yes' AS answer")


def kept(server: Server) -> bool:
    if isinstance(server, RedisServer):
        with Redis.from_url(server.url) as client:
            return bool(client.exists("kept"))
    with psycopg.connect(server.url) as connection:
        return connection.execute("SELECT to_regclass('kept')").fetchone() != (None,)


def now(server: Server) -> float:
    if isinstance(server, RedisServer):
        with Redis.from_url(server.url) as client:
            seconds, microseconds = client.time()
            return seconds + microseconds / 1e6
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone()
        assert row is not None
        return float(row[0])


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# --- their life -------------------------------------------------------------------------------------------


def test_a_server_comes_back_with_its_data_without_it_and_after_a_crash(kind):
    with kind() as server:
        port, first = server.port, server.pid
        write(server)
        server.restart()
        assert server.port == port
        assert server.pid != first
        assert not exists(first)
        assert kept(server)

        server.kill()
        assert not server.alive
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((server.host, port), timeout=1)
        server.start()
        assert kept(server)

        server.restart(keep_data=False)
        assert server.port == port
        assert not kept(server)

        folder, last, memory = server.folder, server.pid, shared_memory_of(server)
        server.kill()
    assert not exists(last)
    assert not folder.exists()
    assert memory is None or memory not in all_shared_memory()


def shared_memory_of(server: Server) -> str | None:
    if not isinstance(server, PostgresServer):
        return None
    return (server.data / "postmaster.pid").read_text().split("\n")[6].split()[1]


def all_shared_memory() -> set[str]:
    """Segments that outlive a process that is killed."""
    table = Path("/proc/sysvipc/shm")
    return {line.split()[1] for line in table.read_text().splitlines()[1:]} if table.exists() else set()


def test_a_server_without_persistence_forgets_at_each_restart():
    with valkey() as server:
        write(server)
        server.restart()
        assert not kept(server)


def test_starting_or_stopping_twice_is_refused():
    with valkey() as server:
        with pytest.raises(RuntimeError, match="is running already"):
            server.start()
        server.stop()
        with pytest.raises(RuntimeError, match="is not running"):
            server.stop()
    with pytest.raises(RuntimeError, match="use it in a `with` statement"):
        valkey().start()


def test_postgres_stops_as_asked():
    with postgres() as server:
        with psycopg.connect(server.url) as connection:
            with pytest.raises(TimeoutError, match="has not ended 0.2 s after SIGTERM"):
                server.stop("smart", seconds=0.2)
            server.stop("fast")
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        server.start()
        assert "was not properly shut down" not in server.told()
        server.stop("immediate")
        server.start()
        assert "was not properly shut down" in server.told()


def test_a_postgres_that_is_killed_in_mid_query_can_be_started_at_once():
    with postgres() as server, ThreadPoolExecutor() as pool:
        idle = psycopg.connect(server.url)
        idle.execute("CREATE TABLE never_committed ()")
        busy = psycopg.connect(server.url)
        query = pool.submit(busy.execute, "SELECT pg_sleep(60)")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            query.result(10)
        server.start()
        for connection in (idle, busy):
            connection.close()


def test_all_kinds_run_side_by_side(valkey_server, postgres_servers):
    with valkey() as another:
        servers = [valkey_server, another, postgres_servers(16), postgres_servers(18)]
        assert all(server.alive for server in servers)
        assert len({server.port for server in servers}) == len(servers)
        write(another)
        assert [kept(server) for server in servers] == [False, True, False, False]


# --- options ----------------------------------------------------------------------------------------------


def test_options_reach_the_server():
    with valkey(maxmemory="50mb", maxmemory_policy="allkeys-lru", requirepass="secret") as server:
        assert ":secret@" in server.url
        with Redis.from_url(server.url) as client:
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}
    database = postgres(18, synchronous_commit="off", fsync=True, max_connections=9)
    with database, psycopg.connect(database.url) as connection:
        names = ("synchronous_commit", "fsync", "max_connections")
        assert [connection.execute(f"SHOW {name}").fetchone() for name in names] == [
            ("off",),
            ("on",),
            ("9",),
        ]
        assert connection.info.server_version // 10_000 == 18


@pytest.mark.parametrize(
    "make", [lambda: valkey(maxmemory="nonsense"), lambda: postgres(work_mem="nonsense")]
)
def test_a_server_that_does_not_start_says_why_and_leaves_nothing(make):
    server = make()
    with pytest.raises(RuntimeError, match="(?s)did not start.*nonsense"), server:
        pass
    assert not server.folder.exists()


def test_binaries_that_cannot_run_say_why(tmp_path):
    server = RedisServer(tmp_path / "gone", None, {})
    with pytest.raises(RuntimeError, match="(?s)did not start.*No such file or directory: .*gone"), server:
        pass
    assert not server.folder.exists()


def test_a_missing_package_names_the_extra():
    with pytest.raises(ServerMissing, match=r"the package no_such_package.* pip install -e '.\[dev\]'"):
        package_folder("no_such_package")


# --- a world of its own -----------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc")
def test_it_listens_on_the_loopback_interface_alone(valkey_server, postgres_server):
    loopback = f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}"
    tables = [Path(name) for name in ("/proc/net/tcp", "/proc/net/tcp6")]
    lines = [
        line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]
    ]
    for server in (valkey_server, postgres_server):
        listening = [
            local
            for _, local, _, state, *_ in lines
            if state == "0A" and local.endswith(f":{server.port:04X}")
        ]
        assert listening == [f"{loopback}:{server.port:04X}"]


def test_nothing_of_this_machine_reaches_a_postgres(monkeypatch):
    for name, value in {
        "PGDATA": "/nowhere",
        "PGPORT": "1",
        "PGOPTIONS": "-c work_mem=64kB",
        "PGTZ": "Asia/Tokyo",
        "PGDATESTYLE": "German",
        "TZ": "Asia/Tokyo",
        "LC_ALL": "tr_TR.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)
    with postgres() as server:
        monkeypatch.undo()  # the client would heed them
        with psycopg.connect(server.url) as connection:
            names = ("timezone", "datestyle", "lc_messages", "work_mem")
            shown = [connection.execute(f"SHOW {name}").fetchone() for name in names]
    assert shown == [("UTC",), ("ISO, MDY",), ("C",), ("4MB",)]


def test_a_free_port_stays_ours_until_it_is_released():
    ports = [Port() for _ in range(50)]
    assert len({port.number for port in ports}) == 50
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", ports[0].number))
        for port in ports:
            port.release()
        other.bind(("127.0.0.1", ports[0].number))


# --- whoever runs the tests, and however they end -----------------------------------------------------------

STARTS_THREE = """
import json, sys
from tests.servers import postgres, valkey
with valkey() as first, postgres(18) as second, valkey() as stopped:
    stopped.stop()
    print(json.dumps([[server.pid, str(server.folder)] for server in (first, second, stopped)]), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_servers_go_away_with_the_process_that_started_them(end):
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_THREE],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as parent:
        assert parent.stdout is not None
        started = json.loads(parent.stdout.readline())
        assert [exists(pid) for pid, _ in started] == [True, True, False]
        assert all(Path(folder).exists() for _, folder in started)
        parent.send_signal(end)
        deadline = time.monotonic() + 10
        while any(exists(pid) or Path(folder).exists() for pid, folder in started):
            assert time.monotonic() < deadline, "a server or its folder is still there"
            time.sleep(0.01)


def test_a_process_that_forked_can_still_end_its_servers():
    """The child has a copy of the pipe by which the keeper knows that we live."""
    with valkey() as server:
        child = os.fork()
        if child == 0:
            signal.pause()
        folder = server.folder
    assert not folder.exists()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_it_works_for_people_who_are_not_root():
    done = subprocess.run(
        [interpreter_for(postgresql.NOBODY), "-B", "-c", STARTS_THREE],
        cwd=ROOT,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        **identity(postgresql.NOBODY),
    )
    assert done.returncode == 0, done.stderr.decode()
    for pid, folder in json.loads(done.stdout):
        assert not exists(pid)
        assert not Path(folder).exists()


def interpreter_for(user: int) -> str:
    """Ours may be in a home that nobody else may enter; then the machine's, if it is of the same version."""
    for name in (sys.executable, f"python{sys.version_info.major}.{sys.version_info.minor}"):
        path = shutil.which(name, path=os.defpath) or name
        if postgresql.may_run(Path(path), user):
            return path
    pytest.skip("no Python of this version that nobody may run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a home that nobody may enter")
def test_binaries_that_nobody_may_run_are_copied(monkeypatch, tmp_path):
    package = package_folder(postgresql.PACKAGE)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    for name in (package.name, f"{package.name}.libs"):
        (home / name).symlink_to(package.with_name(name))
    monkeypatch.setattr(postgresql, "package_folder", lambda name: home / name)
    with postgres(18) as server:
        assert Path(f"/proc/{server.pid}/exe").resolve().is_relative_to(server.folder)
        write(server)


# --- clock steps ------------------------------------------------------------------------------------------


def test_a_preloaded_clock_steps_the_clock_of_the_server(kind):
    with clock() as preloaded:
        if preloaded is None:
            pytest.skip("no C compiler (cc)")
        with kind(env=preloaded.env) as server:
            for offset in (0, 3600, -60):
                preloaded.set(offset)
                assert abs(now(server) - time.time() - offset) < 5


# --- fixtures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_gets_an_empty_redis(valkey_url, redis_url, turn):
    assert valkey_url != redis_url
    for url in (valkey_url, redis_url):
        with Redis.from_url(url) as client:
            assert client.dbsize() == 0
            client.set("left", turn)


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize(
    "postgres_server",
    [16, pytest.param(18, marks=pytest.mark.slow), pytest.param("system", marks=pytest.mark.slow)],
    indirect=True,
)
def test_each_test_gets_an_empty_database(postgres_url, turn):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE left_over (turn int)")


def test_the_default_postgres_is_16(postgres_server):
    assert postgres_server.version == 16
