"""The examples of engines, as their READMEs start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from fencepost.engines.kubernetes.manifest import checked_options, job_for
from tests.engines.orders import an_order
from tests.servers import valkey
from tests.servers.ports import HOST, Port

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@contextmanager
def running(folder: Path, env: Mapping[str, str], log: Path, *command: str) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, env=env, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def ran(folder: Path, env: Mapping[str, str], target: str, job: str) -> dict:
    command = [sys.executable, "-m", "fencepost", "trigger", target, job, "--wait", "--json"]
    deadline = time.monotonic() + 120
    while True:  # a job that no replica has declared yet cannot be triggered
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            return json.loads(done.stdout)
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.5)


def environment(**given: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    return {
        **inherited,
        "PYTHONPATH": str(ROOT / "src"),
        "FENCEPOST_HEARTBEAT": "1",
        "FENCEPOST_RUN_TTL": "5",
        **given,
    }


@pytest.mark.slow
@pytest.mark.cluster
def test_a_celery_task_runs_on_a_worker_of_celery(tmp_path: Path) -> None:
    folder = EXAMPLES / "celery_reports"
    with valkey() as server, ExitStack() as stack:
        env = environment(
            BROKER=server.url,
            FENCEPOST_STORE=server.url.replace("/0", "/1"),
            FENCEPOST_APP="reports:scheduler",
            FENCEPOST_CELERY_APP="reports:app",
        )
        worker = tmp_path / "worker.log"
        stack.enter_context(running(folder, env, worker, "celery", "-A", "reports:app", "worker", "-c", "2"))
        stack.enter_context(
            running(folder, env, tmp_path / "replica.log", "fencepost", "run", "reports:scheduler")
        )
        fire = ran(folder, env, "reports:scheduler", "nightly")
        assert fire["state"] == "succeeded", fire
        assert "the report of ch is built" in worker.read_text()


@pytest.mark.slow
@pytest.mark.cluster
def test_a_batch_runs_on_a_worker_of_dask(tmp_path: Path) -> None:
    folder = EXAMPLES / "dask_batch"
    port = Port()
    address = f"tcp://{HOST}:{port.number}"
    with valkey() as server, ExitStack() as stack:
        env = environment(
            FENCEPOST_STORE=server.url, FENCEPOST_APP="batch:scheduler", FENCEPOST_DASK_SCHEDULER=address
        )
        scheduler = (
            "distributed.cli.dask_scheduler",
            "--host",
            HOST,
            "--port",
            str(port.number),
            "--no-dashboard",
        )
        worker = ("distributed.cli.dask_worker", address, "--no-nanny", "--no-dashboard", "--nthreads", "2")
        local = ("--local-directory", str(tmp_path / "dask"))
        for name, command in (
            ("scheduler", scheduler),
            ("worker", (*worker, *local)),
            ("replica", ("fencepost", "run", "batch:scheduler")),
        ):
            stack.enter_context(running(folder, env, tmp_path / f"{name}.log", *command))
        fire = ran(folder, env, "batch:scheduler", "sums")
        assert fire["state"] == "succeeded", fire
        show = [sys.executable, "-m", "fencepost", "show", fire["key"], "--json"]
        shown = subprocess.run(show, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
        assert json.loads(shown.stdout)["result"] == sum(range(200_000)), shown
    port.release()


def test_the_manifests_of_kubernetes_jobs_are_valid() -> None:
    options = checked_options({"template": str(EXAMPLES / "kubernetes_jobs" / "pod.yaml")})
    manifests = [job_for(an_order("kubernetes", options=options, timeout=3600), "batch")]
    for path in (
        EXAMPLES / "kubernetes_jobs" / "replicas.yaml",
        ROOT / "deploy" / "kubernetes" / "engine-rbac.yaml",
    ):
        manifests += yaml.safe_load_all(path.read_text())
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.33", strict=True)
    role = next(each for each in manifests if each["kind"] == "Role")
    assert {(rule["resources"][0], verb) for rule in role["rules"] for verb in rule["verbs"]} == {
        *(("jobs", verb) for verb in ("create", "get", "list", "watch", "patch", "delete")),
        ("pods", "list"),
        ("pods/log", "get"),
    }
