"""A job that kills its own process again and again is given up; the others keep running."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from fencepost.model import Reason
from fencepost.store.base import FireQuery
from tests.cluster.harness import Cluster
from tests.execution.places import url_of

pytestmark = pytest.mark.cluster

DEADLY = Path(__file__).parent / "apps" / "deadly.py"
ROOT = Path(__file__).parents[2]


def test_after_three_crashes_it_is_lost_and_the_others_keep_running(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    settings: dict[str, Any] = {"leader_ttl": 2, "run_ttl": 2, "heartbeat": 0.5}
    with Cluster(
        url, tmp_path, jobs=5, period=0.5, env={"PYTHONPATH": str(ROOT)}, anchor=time.time(), **settings
    ) as cluster:
        cluster.start(4, DEADLY)
        cluster.wait_for(
            lambda: cluster.reader.ask(lambda store: store.jobs(["deadly"])), 5, "it is declared"
        )
        key = cluster.trigger("deadly")
        cluster.wait_for(
            lambda: (fire := cluster.reader.fire(key)) and fire.state.final, 20, "it is given up"
        )
        fire = cluster.reader.fire(key)
        assert fire is not None
        assert (fire.state, fire.reason, fire.crashes) == ("lost", "crashed 3 times", 3)
        assert [attempt.outcome for attempt in fire.attempts] == ["lost"] * 3
        assert len({attempt.replica for attempt in fire.attempts}) == 3
        [survivor] = cluster.alive
        later = time.time() + 0.1
        cluster.wait_for(
            lambda: len({mark.key.split("@")[0] for mark in cluster.marks() if mark.wall > later}) == 5,
            5,
            "all other jobs run",
        )
        assert survivor.alive


@pytest.mark.parametrize("place", ["sqlite", "file"])  # where a death can be proven
def test_what_is_due_after_a_crash_is_not_skipped_for_a_run_that_is_dead(
    tmp_path: Path, request: pytest.FixtureRequest, place: str
) -> None:
    """The process dies in the middle of a run, and is started again when the next fire is due."""
    url = url_of(place, tmp_path, request)
    settings: dict[str, Any] = {"leader_ttl": 30, "run_ttl": 30, "heartbeat": 10}
    with Cluster(url, tmp_path, jobs=1, period=2, body=60, anchor=time.time(), **settings) as cluster:
        [first] = cluster.start(1)
        cluster.wait_for(cluster.marks, 20, "it runs")
        cluster.kill(first)
        killed = time.time()
        [begun] = [mark.key for mark in cluster.marks()]
        time.sleep(max(0.0, cluster.marks()[0].wall + 2 - time.time()))
        cluster.start(1)
        cluster.wait_for(lambda: len(cluster.marks()) > 1, 20, "it runs again")
        query = FireQuery(job_id=begun.split("@")[0])
        fires = {fire.key: fire for fire in cluster.reader.ask(lambda store: store.find_fires(query))}
        assert fires[begun].state == "lost"
        again = fires[cluster.marks()[1].key]
        # Later fires may be skipped for the run of this one, which is alive.
        due_before_it = [
            fire for fire in fires.values() if killed < fire.due_at.timestamp() < again.due_at.timestamp()
        ]
        assert not [fire for fire in due_before_it if fire.reason == Reason.OVERLAP]
