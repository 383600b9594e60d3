"""APScheduler's own test suite, with every scheduler guarded. What differs is expected, and listed in docs/guard.md."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("test_schedulers.py", "test_job.py", "test_executors.py")
EXPECTED = re.compile(r"^\| `(test_\w+)` \|", re.MULTILINE)
"""How docs/guard.md lists a test that differs."""


def sources(cache: Path) -> Path:
    """APScheduler's source distribution, of the release that is installed. Fetched once."""
    name = f"apscheduler-{importlib.metadata.version('apscheduler')}"
    if not (cache / name).exists():
        fetch = ["download", "--quiet", "--no-binary", ":all:", "--no-deps", "--dest", str(cache)]
        command = [sys.executable, "-m", "pip", *fetch, name.replace("-", "==")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        found = list(cache.glob(f"{name}.tar.gz"))
        if not found:
            reason = f"the sources of {name} cannot be had: {done.stderr[-500:]}"
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
        with tarfile.open(found[0]) as archive:
            archive.extractall(cache, filter="data")
    return cache / name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_suite_of_apscheduler_passes_guarded_but_for_what_is_listed(
    pytestconfig: pytest.Config,
) -> None:
    assert pytestconfig.cache is not None
    folder = sources(Path(pytestconfig.cache.mkdir("apscheduler")))
    plugins = ("apscheduler_plugin", "anyio.pytest_plugin", "timeout")
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=line", "--timeout=60", "-o", "addopts="]
    command += [word for plugin in plugins for word in ("-p", plugin)]
    # What they try of process pools fails on a busy machine without the guard as well.
    command += [
        "-m",
        "not external_service",
        "-k",
        "not processpool and not broken_pool",
        *(f"tests/{part}" for part in PARTS),
    ]
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("FENCEPOST_", "PYTEST_"))
    }
    env |= {"PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=800)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert int(passed[1] if passed else 0) > 200, done.stdout[-3000:] + done.stderr[-3000:]
    failed = set(re.findall(r"^FAILED \S*::(\w+)", done.stdout, re.MULTILINE))
    expected = set(EXPECTED.findall((ROOT / "docs" / "guard.md").read_text()))
    assert failed - expected == set(), done.stdout[-5000:]
