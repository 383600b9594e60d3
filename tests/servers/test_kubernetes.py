"""The played Kubernetes, as far as the engine's tests do not see it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fencepost.engines.kubernetes.manifest import job_for
from tests.engines.orders import an_order
from tests.servers.kubernetes import Controller, State
from tests.servers.kubernetes.state import Refused


def a_job() -> dict[str, Any]:
    return job_for(an_order("kubernetes", options={"image": "example/jobs:1"}), "batch")


def test_jobs_that_are_over_cost_the_controller_next_to_nothing(tmp_path: Path) -> None:
    """It runs in the process through which a whole scene's traffic goes, thirty times a second."""
    state = State()
    for _ in range(1000):
        job = a_job()
        over = {"type": "Complete", "status": "True", "at": time.time()}
        state.create("jobs", {**job, "status": {"startTime": "now", "conditions": [over]}})
        labels = {"job-name": job["metadata"]["name"]}
        pod = {"metadata": {"name": f"{job['metadata']['name']}-1", "labels": labels}, "spec": {}}
        state.create("pods", {**pod, "status": {"phase": "Succeeded"}})
    controller = Controller(state, {}, tmp_path)
    begun = time.thread_time()
    for _ in range(10):
        controller.reconcile()
    assert time.thread_time() - begun < 0.3


def test_what_was_read_does_not_change_with_what_is_stored() -> None:
    state = State()
    made = state.create("jobs", a_job())
    name, version = made["metadata"]["name"], state.version
    read = state.get("jobs", name)
    state.change("jobs", name, lambda job: job["status"].update(active=1))
    state.remove("jobs", name)
    assert read["status"] == {}
    assert read["metadata"]["resourceVersion"] == str(version)
    assert [(event.type, event.object["status"]) for event in state.since("jobs", version)] == [
        ("MODIFIED", {"active": 1}),
        ("DELETED", {"active": 1}),
    ]
    state.forget_history()
    with pytest.raises(Refused, match="too old resource version"):
        state.since("jobs", version)
