"""The chart of deploy/helm, rendered by helm: the schemas of Kubernetes take it, and what would not work is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "fencepost"
HELM = shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")
GIVEN = ("image.repository=shop/jobs", "store.secretName=shop", "auth.secretName=shop")
VERSIONS = ["1.25", kubernetes_validate.latest_version()]

pytestmark = pytest.mark.skipif(HELM is None, reason="no helm: its wheel is for Linux on x86-64")


def rendered(*values: str) -> subprocess.CompletedProcess[str]:
    options = [option for value in values for option in ("--set", value)]
    return subprocess.run(
        [str(HELM), "template", "jobs", str(CHART), *options], capture_output=True, text=True, timeout=60
    )


def resources(*values: str) -> dict[str, Any]:
    done = rendered(*GIVEN, *values)
    assert done.returncode == 0, done.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(done.stdout) if each}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_kubernetes_take_it(version: str) -> None:
    found = resources(
        "namespace=shop",
        "env[0].name=A",
        "env[0].value=b",
        "imagePullSecrets[0].name=c",
        "podAnnotations.d=e",
    )
    assert set(found) == {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}
    for resource in found.values():
        kubernetes_validate.validate(resource, version, strict=True)


def test_the_grace_period_covers_what_happens_after_sigterm() -> None:
    pod = resources("drainTimeoutSeconds=120", "readyDelaySeconds=10")["Deployment"]["spec"]["template"][
        "spec"
    ]
    env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert pod["terminationGracePeriodSeconds"] == 135
    assert (env["FENCEPOST_DRAIN_TIMEOUT"], env["FENCEPOST_READY_DELAY"], env["FENCEPOST_GRACE_PERIOD"]) == (
        "120s",
        "10s",
        "135s",
    )


def test_the_operator_of_prometheus_gets_the_rules_and_a_token() -> None:
    found = resources("serviceMonitor.enabled=true", "prometheusRule.enabled=true")
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "fencepost-rules.yml").read_text())
    assert found["PrometheusRule"]["spec"] == rules
    (endpoint,) = found["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "shop", "key": "token"}


def test_one_replica_has_no_disruption_budget() -> None:
    assert "PodDisruptionBudget" not in resources("replicas=1")


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        (GIVEN[1:], "image.repository"),
        (GIVEN[::2], "store.secretName"),
        (GIVEN[:2], "auth.secretName"),
        ((*GIVEN, "store.url=redis://r"), "not both"),
        ((*GIVEN[::2], "store.url=sqlite:///jobs.db"), "Redis, Valkey or PostgreSQL"),
        ((*GIVEN[::2], "store.url=file:///jobs"), "Redis, Valkey or PostgreSQL"),
        ((*GIVEN[::2], "store.url=memory://", "replicas=1"), "Redis, Valkey or PostgreSQL"),
        ((*GIVEN, "replicas=0"), "replicas"),
        ((*GIVEN, "replica=2"), "replica"),
    ],
)
def test_what_would_not_work_is_refused_with_the_remedy(values: tuple[str, ...], remedy: str) -> None:
    done = rendered(*values)
    assert done.returncode != 0
    assert remedy in done.stderr


def test_sqlite_is_taken_for_one_replica() -> None:
    assert rendered(*GIVEN[::2], "store.url=sqlite:////data/jobs.db", "replicas=1").returncode == 0
