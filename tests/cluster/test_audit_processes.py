"""The audit of what real processes did, while one of them was killed, and while they are at it."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import pytest

from fencepost.insight.audit import audit
from fencepost.store.urls import store_from_url
from tests.cluster.harness import Cluster

SHORT = {"leader_ttl": 1.5, "run_ttl": 1.5, "heartbeat": 0.5}

pytestmark = pytest.mark.cluster


@pytest.fixture(params=["sqlite", "file"])
def cluster(request, tmp_path):
    url = f"sqlite:///{tmp_path}/shared.db" if request.param == "sqlite" else f"file://{tmp_path}/shared"
    with Cluster(url, tmp_path, jobs=20, period=0.5, body=0.02, kind="mixed", **SHORT) as made:
        yield made


def audited(url: str):
    async def session():
        store = store_from_url(url)
        await store.open()
        try:
            return await audit(store)
        finally:
            await store.close()

    return asyncio.run(session())


def test_what_a_cluster_did_is_accounted_for_also_while_it_does_it(cluster):
    cluster.start(3)
    cluster.trigger("quick")
    cluster.planned_ahead(3)
    for _ in range(3):
        time.sleep(0.3)
        running = audited(cluster.url)
        assert running.clean, running.findings
    cluster.kill(cluster.leader())
    time.sleep(1)
    verdict = cluster.finish()
    assert not verdict.violations(), verdict
    # By a process that knows nothing but the store.
    command = [sys.executable, "-m", "fencepost", "audit", "--store", cluster.url, "--json"]
    done = subprocess.run(command, cwd=cluster.folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["clean"]
    assert found["manual"] == 1
    assert found["expected"] >= verdict.due > 80
    fates = ("ran", "skipped", "missed", "lost", "cancelled", "pending")
    assert found["expected"] == sum(found[fate] for fate in fates)
    assert found["lost"] == len(verdict.lost_in_faults)
