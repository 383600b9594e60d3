"""The Kubernetes engine against an API server that keeps real semantics, and a Job controller that is played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost import ConfigurationError
from fencepost.engines.kubernetes import KubernetesEngine
from fencepost.engines.kubernetes.access import found_access
from fencepost.engines.kubernetes.api import ApiError
from fencepost.engines.kubernetes.manifest import checked_options, job_for
from fencepost.runs.engines import Ref, Sighting
from fencepost.testing.engines import EngineConformance, EngineRig
from tests.engines.orders import an_order
from tests.servers.kubernetes import ApiServer
from tests.servers.kubernetes.server import kubeconfig

pytestmark = pytest.mark.cluster

OPTIONS = {"image": "example/jobs:1"}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
async def engine(server: ApiServer, tmp_path: Path) -> AsyncIterator[KubernetesEngine]:
    engine = KubernetesEngine(str(server.kubeconfig(tmp_path)))
    yield engine
    await engine.close()


async def becomes(engine: KubernetesEngine, ref: Ref, kind: str) -> Sighting:
    async with asyncio.timeout(60):
        while (sighting := (await engine.poll([ref]))[ref]).kind != kind:
            await asyncio.sleep(0.02)
    return sighting


def change(server: ApiServer, ref: Ref, **status: Any) -> None:
    assert server.state.change("jobs", ref, lambda job: job["status"].update(status))


def end(server: ApiServer, ref: Ref, type: str, reason: str = "") -> None:
    change(server, ref, conditions=[{"type": type, "status": "True", "reason": reason, "message": "over"}])


def add_pod(server: ApiServer, ref: Ref, name: str, phase: str, code: int | None = None) -> None:
    status: dict[str, Any] = {"phase": phase}
    if code is not None:
        terminated = {"exitCode": code, "reason": "OOMKilled" if code == 137 else "Error"}
        status["containerStatuses"] = [{"name": "job", "state": {"terminated": terminated}}]
    spec = {"containers": [{"name": "job"}]}
    server.state.create(
        "pods", {"metadata": {"name": name, "labels": {"job-name": ref}}, "spec": spec, "status": status}
    )


async def test_the_same_order_twice_is_one_job(server: ApiServer, engine: KubernetesEngine) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    await engine.submit(order)
    await engine.submit(order)
    assert [job["metadata"]["name"] for job in server.state.all("jobs")[0]] == [order.ref]
    assert [status for method, _, status in server.requests if method == "POST"] == [201, 409]
    assert (await engine.poll([order.ref]))[order.ref].kind == "waiting"


async def test_a_foreign_job_of_that_name_ends_the_order(server: ApiServer, engine: KubernetesEngine) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    job = job_for(order, "batch")
    job["metadata"]["annotations"] = {}
    server.state.create("jobs", job)
    await engine.submit(order)
    sighting = (await engine.poll([order.ref]))[order.ref]
    assert (sighting.kind, sighting.succeeded) == ("ended", False)
    assert "not of this fire" in str(sighting.error)
    await engine.stop(order.ref)
    await engine.forget(order.ref)
    assert "deletionTimestamp" not in server.state.get("jobs", order.ref)["metadata"]


async def test_what_the_server_refuses_for_good_ends_the_order(
    server: ApiServer, engine: KubernetesEngine
) -> None:
    template = {"spec": {"containers": [{"name": "job"}, {"name": "sidecar"}]}}
    order = an_order("kubernetes", options={"image": "x", "template": template})
    await engine.submit(order)
    sighting = (await engine.poll([order.ref]))[order.ref]
    assert (sighting.kind, sighting.succeeded) == ("ended", False)
    assert "422" in str(sighting.error)


async def test_another_replica_sees_what_the_first_has_sent(
    server: ApiServer, engine: KubernetesEngine, tmp_path: Path
) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    await engine.submit(order)
    other = KubernetesEngine(str(server.kubeconfig(tmp_path)))
    try:
        change(server, order.ref, active=1, ready=1)
        await becomes(other, order.ref, "running")
    finally:
        await other.close()


async def test_a_job_that_is_deleted_is_gone(server: ApiServer, engine: KubernetesEngine) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    await engine.submit(order)
    await becomes(engine, order.ref, "waiting")
    server.state.remove("jobs", order.ref)
    await becomes(engine, order.ref, "gone")


async def test_while_the_server_is_away_nothing_is_gone(server: ApiServer, engine: KubernetesEngine) -> None:
    order, unknown = an_order("kubernetes", options=OPTIONS), an_order("kubernetes").ref
    await engine.submit(order)
    server.stop()
    assert (await engine.poll([unknown]))[unknown].kind == "unsure"
    with pytest.raises(Exception, match="connect"):
        await engine.submit(an_order("kubernetes", options=OPTIONS))
    server.start()
    assert (await engine.poll([unknown]))[unknown].kind == "gone"


async def test_a_watch_resumes_after_a_restart_without_listing(
    server: ApiServer, engine: KubernetesEngine
) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    await engine.submit(order)
    await becomes(engine, order.ref, "waiting")
    await heard_of(engine, order.ref)
    server.restart()
    change(server, order.ref, active=1, ready=1)
    await becomes(engine, order.ref, "running")
    assert engine._watched.lists == 1


async def test_a_watch_too_old_to_resume_lists_again(server: ApiServer, engine: KubernetesEngine) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    await engine.submit(order)
    await heard_of(engine, order.ref)
    server.stop()
    change(server, order.ref, active=1, ready=1)
    server.state.forget_history()
    server.start()
    await becomes(engine, order.ref, "running")
    assert engine._watched.lists == 2


async def heard_of(engine: KubernetesEngine, ref: Ref) -> None:
    async with asyncio.timeout(60):
        while ref not in engine._watched.jobs:
            await asyncio.sleep(0.02)


async def test_a_failed_pod_ends_the_order_with_its_exit_code_and_log(
    server: ApiServer, engine: KubernetesEngine
) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    await engine.submit(order)
    add_pod(server, order.ref, "p1", "Failed", 137)
    server.state.logs["p1"] = b"line\n" * 10_000 + b"the end\n"
    end(server, order.ref, "Failed", "BackoffLimitExceeded")
    sighting = await becomes(engine, order.ref, "ended")
    assert not sighting.succeeded
    assert sighting.error == "exit code 137 (OOMKilled)"
    assert sighting.output is not None
    assert sighting.output.endswith("the end\n")
    assert len(sighting.output) <= 16_000


def complete(server: ApiServer, ref: Ref, *phases: str) -> None:
    for number, phase in enumerate(phases):
        add_pod(server, ref, f"p{number}", phase, 0 if phase == "Succeeded" else None)
    end(server, ref, "Complete")


Scene = Callable[[ApiServer, Ref], None]
SCENES: dict[str, tuple[Scene, str]] = {
    "a lost pod": (lambda server, ref: end(server, ref, "Failed", "BackoffLimitExceeded"), "gone"),
    "past its deadline": (lambda server, ref: end(server, ref, "Failed", "DeadlineExceeded"), "ended"),
    "complete, but not settled": (lambda server, ref: complete(server, ref, "Succeeded"), "gone"),
    "complete by a second pod": (
        lambda server, ref: complete(server, ref, "Running", "Succeeded"),
        "running",
    ),
}


@pytest.mark.parametrize("name", SCENES)
async def test_what_a_job_that_is_over_says(name: str, server: ApiServer, engine: KubernetesEngine) -> None:
    """Complete is never `succeeded`: a pod that the start gate refuses ends with 0 as well."""
    order = an_order("kubernetes", options=OPTIONS)
    await engine.submit(order)
    scene, kind = SCENES[name]
    scene(server, order.ref)
    sighting = await becomes(engine, order.ref, kind)
    assert not sighting.succeeded


async def test_a_pod_that_could_not_reach_the_store_has_crashed(
    server: ApiServer, engine: KubernetesEngine
) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    await engine.submit(order)
    add_pod(server, order.ref, "p1", "Failed", 69)
    end(server, order.ref, "Failed", "BackoffLimitExceeded")
    await becomes(engine, order.ref, "gone")


async def test_an_evicted_pod_has_crashed_not_failed(server: ApiServer, engine: KubernetesEngine) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    await engine.submit(order)
    add_pod(server, order.ref, "p1", "Failed", 143)
    server.state.change("pods", "p1", lambda pod: pod["status"].update(reason="Evicted"))
    end(server, order.ref, "Failed", "BackoffLimitExceeded")
    await becomes(engine, order.ref, "gone")


async def test_stop_and_forget(server: ApiServer, engine: KubernetesEngine) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    await engine.submit(order)
    await engine.forget(order.ref)
    assert server.state.get("jobs", order.ref)["spec"]["ttlSecondsAfterFinished"] == 600
    await engine.stop(order.ref)
    assert "deletionTimestamp" in server.state.get("jobs", order.ref)["metadata"]
    unknown = an_order("kubernetes").ref
    await engine.stop(unknown)
    await engine.forget(unknown)


async def test_a_create_whose_reply_is_lost_is_adopted(server: ApiServer, engine: KubernetesEngine) -> None:
    order = an_order("kubernetes", options=OPTIONS)
    server.lost_replies = 1
    with pytest.raises(ApiError, match="504"):
        await engine.submit(order)
    await engine.submit(order)
    assert len(server.state.all("jobs")[0]) == 1


# --- the manifest ---------------------------------------------------------------------------------------------


def test_the_job_of_an_order(tmp_path: Path) -> None:
    import kubernetes_validate

    template = tmp_path / "pod.yaml"
    spec = {
        "containers": [
            {"name": "sidecar", "image": "proxy:1"},
            {"name": "job", "image": "old:1", "env": [{"name": "REGION", "value": "ch"}]},
        ]
    }
    template.write_text(yaml.safe_dump({"metadata": {"labels": {"team": "data"}}, "spec": spec}))
    options = checked_options(
        {
            "template": str(template),
            "container": "job",
            "image": "example/jobs:2",
            "resources": {"limits": {"memory": "1Gi"}},
            "service_account": "reports",
            "env": {"FENCEPOST_APP": "app:scheduler"},
        }
    )
    order = an_order("kubernetes", options=options, timeout=59.5)
    job = job_for(order, "batch")
    kubernetes_validate.validate(job, "1.33", strict=True)
    assert job["metadata"]["name"] == order.ref
    assert len(order.ref) <= 63
    given = job["spec"]
    assert (given["backoffLimit"], given["activeDeadlineSeconds"], given["ttlSecondsAfterFinished"]) == (
        0,
        660,
        86_400,
    )
    pod = given["template"]
    assert pod["metadata"]["labels"] == {"team": "data", "app.kubernetes.io/managed-by": "fencepost"}
    assert (pod["spec"]["restartPolicy"], pod["spec"]["serviceAccountName"]) == ("Never", "reports")
    sidecar, container = pod["spec"]["containers"]
    assert sidecar == spec["containers"][0]
    assert container["image"] == "example/jobs:2"
    assert {each["name"]: each["value"] for each in container["env"]} == {
        "REGION": "ch",
        "FENCEPOST_APP": "app:scheduler",
        "FENCEPOST_ORDER": order.text,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs an image"),
        ({"imgae": "x"}, "did you mean 'image'"),
        ({"image": 3}, "wrong type"),
        ({"image": "x", "kept_for": -1}, "seconds"),
        ({"template": "/nowhere.yaml"}, "cannot be read"),
        ({"template": {"spec": {"containers": [{"name": "a", "image": "x", "command": ["y"]}]}}}, "command"),
        ({"template": {"spec": {"restartPolicy": "Always"}}, "image": "x"}, "restartPolicy"),
        (
            {"image": "x", "container": "b", "template": {"spec": {"containers": [{"name": "a"}]}}},
            "no container",
        ),
    ],
)
def test_options_that_make_no_pod_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        checked_options(options)


def test_arguments_too_long_for_a_pod_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="too long"):
        job_for(an_order("kubernetes", options=OPTIONS, args={"text": "x" * 130_000}), "batch")


# --- access ----------------------------------------------------------------------------------------------------


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.engines.kubernetes.access.SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr("ssl.create_default_context", lambda cafile: f"trusts {cafile}")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    monkeypatch.delenv("FENCEPOST_KUBECONFIG", raising=False)
    with pytest.raises(ConfigurationError, match="no service account token"):
        found_access(None, None)
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "namespace").write_text("jobs")
    access = found_access(None, None)
    assert (access.server, access.namespace) == ("https://[fd00::1]:6443", "jobs")
    assert str(access.tls) == f"trusts {tmp_path}/ca.crt"
    assert access.headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second\n")
    assert access.headers() == {"Authorization": "Bearer second"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": [{"name": "u", "user": {"exec": {"command": "aws"}}}]}, "signs in by a program"),
        ({"clusters": []}, "the cluster 'c'"),
        (
            {
                "clusters": [
                    {"name": "c", "cluster": {"server": "https://x", "insecure-skip-tls-verify": True}}
                ]
            },
            "insecure-skip-tls-verify is refused",
        ),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = kubeconfig("http://127.0.0.1:1", tmp_path)
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **change}))
    with pytest.raises(ConfigurationError, match=message):
        found_access(str(path), None)


# --- the suite for engines ---------------------------------------------------------------------------------------


class Received(Sequence[str]):
    """The orders in the environment of the pods, as they were created."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def _orders(self) -> list[str]:
        found = []
        for job in self._server.state.all("jobs")[0]:
            (container,) = job["spec"]["template"]["spec"]["containers"]
            found += [each["value"] for each in container["env"] if each["name"] == "FENCEPOST_ORDER"]
        return found

    def __getitem__(self, index: Any) -> Any:
        return self._orders()[index]

    def __len__(self) -> int:
        return len(self._orders())


class TestConformance(EngineConformance):
    @pytest.fixture
    async def rig(self, server: ApiServer, engine: KubernetesEngine) -> EngineRig:
        async def finish(succeeds: bool) -> None:
            for number, job in enumerate(server.state.all("jobs")[0]):
                ref = job["metadata"]["name"]
                add_pod(server, ref, f"pod{number}", *(("Succeeded", 0) if succeeds else ("Failed", 1)))
                end(server, ref, "Complete" if succeeds else "Failed", "BackoffLimitExceeded")

        return EngineRig(engine, Received(server), finish, dict(OPTIONS))
