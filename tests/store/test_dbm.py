"""The example of docs/new-store.md: a store of one file keeps every rule, and a package of its own brings it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fencepost.testing.conformance import HandClock, Harness, StoreConformance
from fencepost_dbm import DbmStore, Rows


@pytest.mark.slow
class TestDbm(StoreConformance):
    @pytest.fixture
    async def harness(self, tmp_path: Path):
        clock = HandClock()
        store = DbmStore(tmp_path / "jobs", clock)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()


class Dying(dict[bytes, bytes]):
    """A dbm whose process dies after so many writes."""

    left = 1_000

    def __setitem__(self, key: bytes, value: bytes) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        super().__setitem__(key, value)


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_step_is_written_as_a_whole_or_not_at_all(writes: int) -> None:
    db = Dying({b"job/a": b"1", b"job/b": b"1"})
    rows = Rows(db)
    for key in ("a", "b"):
        rows.put("job", key, 2)
    db.left = writes
    if writes < 3:
        with pytest.raises(KeyboardInterrupt):
            rows.commit()
    else:
        rows.commit()
    db.left = 1_000
    found = {key: value for key, value in Rows(db).every("job")}
    assert found == ({"a": 1, "b": 1} if not writes else {"a": 2, "b": 2})
    assert json.loads(db[b"job/a"]) == found["a"]


EXAMPLE = Path(__file__).parents[2] / "examples" / "own_store"
APP = """
import asyncio
from fencepost import Scheduler, every

async def main():
    scheduler = Scheduler("dbm:///jobs")
    scheduler.job(every(days=1), id="tidy")(lambda: None)
    async with scheduler:
        print((await (await scheduler.trigger("tidy")).wait(timeout=60)).state)

asyncio.run(main())
"""


def test_a_package_that_is_installed_adds_its_scheme(tmp_path: Path) -> None:
    """As pip would leave it: the module, and beside it what its pyproject.toml registers."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    metadata = tmp_path / "site" / "fencepost_dbm-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    [(group, points)] = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (tmp_path / "site" / "fencepost_dbm.py").symlink_to(EXAMPLE / "fencepost_dbm.py")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)

    ran = run("-c", APP)
    assert ran.stdout == "succeeded\n", ran.stderr
    assert (tmp_path / "jobs-default.lock").exists()
    refused = run("-m", "fencepost", "status", "--store", "dmb:///jobs")
    assert refused.returncode == 78
    assert "no store for dmb:// URLs; did you mean 'dbm'?" in refused.stderr
