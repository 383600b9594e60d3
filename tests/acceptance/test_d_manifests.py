"""The manifests of examples/rolling_deploy: what they say fits together, and their command answers their probes."""

from __future__ import annotations

import re
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencepost import Settings
from tests.acceptance import manifests
from tests.acceptance.rolling import EXAMPLE, LEAVING
from tests.web.serving import STARTING, client_of, eventually, server_process

RESOURCES = manifests.read(EXAMPLE / "manifests")
POD = manifests.named(RESOURCES, "Deployment", "app")["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ENV = {each["name"]: each["value"] for each in CONTAINER["env"] if "value" in each}


@pytest.mark.parametrize("resource", RESOURCES, ids=manifests.title)
def test_d7_a_manifest_fits_the_schema_of_kubernetes(resource: dict[str, Any]) -> None:
    manifests.fits_the_schema(resource)


def test_d7_the_manifests_fit_each_other() -> None:
    manifests.labels_and_ports_find_each_other(RESOURCES)
    manifests.nobody_runs_as_root_or_writes_where_they_should_not(RESOURCES)
    database = manifests.named(RESOURCES, "StatefulSet", "postgres")["spec"]["template"]["spec"]
    (container,) = database["containers"]
    given = {each["name"]: each["value"] for each in container["env"]}
    url = f"postgresql://{given['POSTGRES_USER']}:$(DATABASE_PASSWORD)@postgres:5432/{given['POSTGRES_DB']}"
    assert ENV["DATABASE_URL"] == url
    sources = [volume["secret"] for pod in (POD, database) for volume in pod["volumes"] if "secret" in volume]
    used = {item["key"] for source in sources for item in source["items"]}
    made = re.findall(r"--from-literal=([\w.-]+)=", (EXAMPLE / "README.md").read_text())
    assert used == set(made)


def test_d7_the_shutdown_fits_the_grace_period_and_the_probes() -> None:
    settings = Settings.load(env={name: value for name, value in ENV.items() if not name.endswith("_FILE")})
    assert settings.warnings() == []
    assert settings.grace_period == timedelta(seconds=POD["terminationGracePeriodSeconds"])
    assert settings.ready_delay + settings.drain_timeout < settings.grace_period
    probe = CONTAINER["readinessProbe"]
    noticed = timedelta(seconds=probe["periodSeconds"] * (probe["failureThreshold"] + 1))
    assert noticed < settings.ready_delay
    assert "lifecycle" not in CONTAINER


@pytest.mark.cluster
def test_d6_the_container_answers_its_probes_and_ends_in_order(postgres_url: str, tmp_path: Path) -> None:
    """The manifest's own command and settings, on loopback."""
    command = CONTAINER["command"]
    assert command[command.index("--port") + 1] == str(CONTAINER["ports"][0]["containerPort"])
    here = ["{port}" if word == "8000" else word.replace("0.0.0.0", "127.0.0.1") for word in command]
    token = tmp_path / "token"
    token.write_text("secret of the test")
    changed = {
        "FENCEPOST_AUTH_TOKEN_FILE": str(token),
        "DATABASE_URL": postgres_url,
        "PYTHONPATH": str(EXAMPLE),
    }
    paths = {
        name: CONTAINER[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")
    }
    with server_process(here, tmp_path, {**ENV, **changed}) as process, client_of(process.url) as client:

        def answers() -> dict[str, int]:
            try:  # as the kubelet asks, by the pod's address
                asked = {"Host": "10.42.0.7:8000"}
                return {name: client.get(path, headers=asked).status_code for name, path in paths.items()}
            except httpx2.HTTPError:
                return {}

        eventually(lambda: answers() == dict.fromkeys(paths, 200), STARTING)
        process.popen.send_signal(signal.SIGTERM)
        eventually(lambda: answers() == {"startup": 200, "liveness": 200, "readiness": 503})
        assert client.get(paths["readiness"]).json() == LEAVING
        assert client.get("/work").status_code == 200, "requests are served meanwhile"
        assert process.ended(POD["terminationGracePeriodSeconds"]) is not None
        assert token.read_text() not in process.told()
