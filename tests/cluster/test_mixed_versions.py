"""0.1.0 and this version on one store, under load, one replica of each killed: nothing doubled, all accounted for."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.cluster.harness import Cluster, Process

ROOT = Path(__file__).parents[2]
RELEASE = "fe6da1b"
"""The last commit of 0.1.0."""
JOBS = 10

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of 0.1.0, as released."""
    archive = subprocess.run(["git", "archive", RELEASE, "src"], cwd=ROOT, capture_output=True)
    if archive.returncode:
        assert not os.environ.get("CI"), archive.stderr.decode()
        pytest.skip("this clone does not reach back to 0.1.0")
    folder = tmp_path_factory.mktemp("released")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


def has_run(cluster: Cluster, process: Process, count: int) -> bool:
    return sum(mark.pid == process.pid for mark in cluster.marks()) >= count


def jobs_since(cluster: Cluster, moment: float) -> int:
    return len({mark.key.partition("@")[0] for mark in cluster.marks() if mark.wall > moment})


def test_an_upgrade_under_load_doubles_and_forgets_nothing(url: str, released: Path, tmp_path: Path) -> None:
    with Cluster(url, tmp_path, jobs=JOBS, period=1.0, leader_ttl=3, run_ttl=3, heartbeat=1) as cluster:
        old = cluster.spawn(2, env={"PYTHONPATH": str(released)})
        cluster.wait_for(
            lambda: has_run(cluster, old[0], 10) or has_run(cluster, old[1], 10), 60, "0.1.0 runs"
        )
        new = cluster.start(2, seconds=60)
        cluster.wait_for(lambda: all(has_run(cluster, each, 10) for each in new), 60, "this version runs")
        for process in (old[0], new[0]):
            cluster.kill(process)
        seen = len(cluster.marks())
        cluster.wait_for(lambda: len(cluster.marks()) > seen + 60, 60, "what is left goes on")
        (last,) = (cluster.kill(process) for process in old[1:])
        # What 0.1.0 held is let go of. A row of many fires that still grows would reach past the end of the verdict.
        cluster.wait_for(lambda: jobs_since(cluster, last.begun) == JOBS, 60, "every job runs again")
        assert cluster.finish(60).violations() == []
