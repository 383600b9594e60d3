"""The rest of examples/kubernetes: its manifests, its one command, and what its parts promise."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fencepost import ConfigurationError, Settings
from fencepost.store.redis import RedisStore
from poller.devices import Fleet
from poller.readings import Readings
from poller.settings import PollerSettings
from tests.acceptance import manifests
from tests.acceptance.pollers import EXAMPLE, Pollers
from tests.servers import valkey
from tests.web.serving import STARTING, eventually

MANIFESTS = manifests.read(EXAMPLE / "manifests")


def manifest(kind: str, name: str = "poller") -> Any:
    return manifests.named(MANIFESTS, kind, name)


POD = manifest("Deployment")["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ENV = {each["name"]: each["value"] for each in CONTAINER["env"] if "value" in each}


# --- the manifests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", MANIFESTS, ids=manifests.title)
def test_a_manifest_fits_the_schema_of_kubernetes(resource: dict[str, Any]) -> None:
    manifests.fits_the_schema(resource)


def test_labels_and_ports_find_each_other() -> None:
    manifests.labels_and_ports_find_each_other(MANIFESTS)
    assert manifest("Deployment")["spec"]["replicas"] == 3


def test_only_those_who_need_to_connect_can() -> None:
    manifests.network_policies_close_every_pod(MANIFESTS)


def test_addresses_are_those_of_the_services() -> None:
    poller = PollerSettings.load(
        {name: value.replace("$(VALKEY_PASSWORD)", "x") for name, value in ENV.items()}
    )
    for url, name in ((poller.valkey, "valkey"), (poller.devices_url, "devices")):
        assert urlsplit(url).hostname == name
        assert urlsplit(url).port == manifest("Service", name)["spec"]["ports"][0]["port"]


def test_the_settings_fit_each_other_the_probes_and_the_grace_period() -> None:
    settings = Settings.load(env={name: value for name, value in ENV.items() if not name.endswith("_FILE")})
    assert settings.warnings() == []
    assert settings.leader_ttl == settings.run_ttl == 3 * settings.heartbeat
    assert settings.grace_period == timedelta(seconds=POD["terminationGracePeriodSeconds"])
    assert settings.ready_delay + settings.drain_timeout < settings.grace_period
    probe = CONTAINER["readinessProbe"]
    noticed = timedelta(seconds=probe["periodSeconds"] * (probe["failureThreshold"] + 1))
    assert noticed < settings.ready_delay
    assert "lifecycle" not in CONTAINER  # a preStop hook would eat from the same grace period


def test_secrets_come_from_the_secret_and_the_readme_makes_all_of_it() -> None:
    sources = {each["name"]: each["valueFrom"] for each in CONTAINER["env"] if "valueFrom" in each}
    assert sources["POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    keys = {sources["VALKEY_PASSWORD"]["secretKeyRef"]["key"]}
    for pod in (POD, manifest("StatefulSet", "valkey")["spec"]["template"]["spec"]):
        keys |= {item["key"] for volume in pod["volumes"] for item in volume["secret"]["items"]}
    made = re.findall(r"--from-literal=([\w.-]+)=", (EXAMPLE / "README.md").read_text())
    assert keys == set(made)
    (mount,) = CONTAINER["volumeMounts"]
    assert ENV["FENCEPOST_AUTH_TOKEN_FILE"] == f"{mount['mountPath']}/auth-token"


def test_nobody_runs_as_root_or_writes_where_they_should_not() -> None:
    manifests.nobody_runs_as_root_or_writes_where_they_should_not(MANIFESTS)


@pytest.mark.cluster
def test_the_container_answers_its_probes_and_ends_in_order(valkey_url: str, tmp_path: Path) -> None:
    """The manifest's own command and settings, on loopback. Only the delay is shorter."""
    command = CONTAINER["command"]
    assert command[command.index("--port") + 1] == str(CONTAINER["ports"][0]["containerPort"])
    here = ["{port}" if word == "8000" else word.replace("0.0.0.0", "127.0.0.1") for word in command]
    token = tmp_path / "token"
    token.write_text("secret of the test")
    changed = {
        "FENCEPOST_AUTH_TOKEN_FILE": str(token),
        "FENCEPOST_READY_DELAY": "1s",
        "POLLER_VALKEY": valkey_url,
    }
    env = {**ENV, **changed, "PYTHONPATH": str(EXAMPLE), "POLLER_DEVICES_URL": "http://127.0.0.1:1"}
    with Pollers(valkey_url, tmp_path, horizon="") as pollers:
        (pod,) = pollers.spawn("poller-0", env=env, command=here)
        paths = {
            name: CONTAINER[f"{name}Probe"]["httpGet"]["path"]
            for name in ("startup", "liveness", "readiness")
        }

        def answers() -> dict[str, int]:
            return {name: pod.probe(path) for name, path in paths.items()}

        eventually(lambda: set(answers().values()) == {200}, STARTING)
        assert pod.client.get("/api/v1/status").status_code == 401
        bearer = {"Authorization": f"Bearer {token.read_text()}"}
        assert pod.client.get("/scheduler/status", headers=bearer).json()["replica"].startswith("poller-0-")
        pod.send(signal.SIGTERM)
        eventually(lambda: answers() == {"startup": 200, "liveness": 200, "readiness": 503})
        pod.process.ended(POD["terminationGracePeriodSeconds"])
        assert token.read_text() not in pod.told()


async def test_valkey_keeps_what_it_has_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    """The manifest's options give the first of the promises in docs/stores.md."""
    (container,) = manifest("StatefulSet", "valkey")["spec"]["template"]["spec"]["containers"]
    words = container["args"][1:]
    options = dict(
        zip((word.removeprefix("--").replace("-", "_") for word in words[::2]), words[1::2], strict=True)
    )
    assert options.pop("dir") == container["volumeMounts"][0]["mountPath"]
    caplog.set_level(logging.INFO)
    with valkey(**options) as server:
        store = RedisStore(server.url)
        await store.open()
        await store.close()
    assert "each fire is claimed exactly once" in caplog.text


# --- the one command --------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_everything_on_one_machine(valkey_url: str, tmp_path: Path) -> None:
    """`python -m poller.local` says who leads; when that one is killed, who does next; and Ctrl-C ends all of it."""
    told = tmp_path / "told"
    with told.open("wb") as output:
        command = [sys.executable, "-m", "poller.local", "--valkey", valkey_url]
        popen = subprocess.Popen(command, cwd=EXAMPLE, env=os.environ, stdout=output, stderr=output)
    try:
        leads = eventually(
            lambda: re.search(r"leads, term 1: .*\n.*kill -9 (\d+)", told.read_text()), STARTING
        )
        os.kill(int(leads[1]), signal.SIGKILL)
        eventually(lambda: "leads, term 2: " in told.read_text())
        assert f"ended (-{signal.SIGKILL.value})" in told.read_text()
    finally:
        popen.send_signal(signal.SIGINT)
        assert popen.wait(STARTING) == 0
    assert "Traceback" not in told.read_text()


# --- the parts --------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_devices() -> None:
    one, other, third = Fleet(seed=7, failing=0.3), Fleet(seed=7, failing=0.3), Fleet(seed=8, failing=0.3)
    readings = [one.reading(2) for _ in range(50)]
    assert readings == [other.reading(2) for _ in range(50)]
    assert readings != [third.reading(2) for _ in range(50)]
    assert 5 < readings.count(None) < 25


async def test_an_older_token_overwrites_nothing(valkey_url: str) -> None:
    readings = Readings(valkey_url)
    assert await readings.write(1, {"value": 1.0}, token=9)
    assert await readings.write(1, {"value": 2.0}, token=2**60)
    assert not await readings.write(1, {"value": 3.0}, token=2**60 - 1)
    assert await readings.all() == {"stale": False, "readings": {"1": {"value": 2.0}}}
    await readings.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"POLLER_VALKEY": "redis://h/0?prefix=other"},
        {"POLLER_DEVICES_URL": "ftp://h"},
        {"POLLER_DEVICES": "0"},
        {"POLLER_INTERVAL": "often"},
        {"POLLER_RETRY_FIRST": "nan"},
        {"POLLER_LOG_FORMAT": "xml"},
    ],
)
def test_settings_are_checked(wrong: dict[str, str]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigurationError, match=name):
        PollerSettings.load(wrong)
