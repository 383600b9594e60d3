"""Real processes while their store moves from one server to a cluster."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from fencepost.store.redis.move import move
from tests.cluster.harness import Cluster
from tests.cluster.test_failover_processes import SETTINGS, go_on, look_at, told_by_all
from tests.servers import valkey
from tests.servers.redis_cluster import valkey_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]


def test_a_store_moves_to_a_cluster_under_load(tmp_path: Path) -> None:
    with (
        valkey() as old,
        valkey_cluster() as new,
        Cluster(old.url, tmp_path, jobs=50, period=0.5, body=0.05, **SETTINGS) as cluster,
    ):
        left_behind = cluster.start(3)
        go_on(cluster, number=300)
        for process in left_behind:
            cluster._fault("moved", process)  # what it runs now cannot be recorded
        moved = time.time()
        asyncio.run(move(old.url, new.url, "default"))
        look_at(cluster, new.url)
        cluster.start(3, env={"LOAD_STORE": new.url})
        go_on(cluster, number=300)
        late = [mark for mark in cluster.marks() if mark.pid in {each.pid for each in left_behind}]
        assert max(mark.wall for mark in late if mark.what == "start") < moved + 1.0
        assert "moved to a cluster" in told_by_all(cluster)
        verdict = cluster.finish(patience=30)
        assert verdict.violations() == [], f"{verdict}\n{verdict.evidence()}\n{told_by_all(cluster)[-3000:]}"
