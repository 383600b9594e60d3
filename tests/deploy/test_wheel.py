"""What `pip install fencepost` gives: the package alone, seven others, quick to import, the same bytes each time."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from deploy.release_check import BASE

from tests.deploy.wheels import PATIENCE, build_wheel, install

MOST_IMPORT_SECONDS = 0.15
INSTALLED = (
    "import json; from importlib.metadata import distributions;"
    " print(json.dumps([each.name.lower() for each in distributions()]))"
)
# CPU time, the best of a few: what others do on the machine is not counted.
IMPORT = "import time; begun = time.process_time(); import fencepost; print(time.process_time() - begun)"

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("fresh") / "venv")


def said(python: Path, code: str) -> str:
    return subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout


def test_it_holds_the_package_alone(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {
        "fencepost",
        f"{'-'.join(wheel.name.split('-')[:2])}.dist-info",
    }
    assert not [name for name in names if "/tests/" in name or name.endswith((".db", ".csv", ".gz"))]


def test_the_same_source_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    assert build_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_seven_packages_come_along(python: Path) -> None:
    assert set(json.loads(said(python, INSTALLED))) == {"fencepost", *BASE}


def test_it_is_imported_quickly(python: Path) -> None:
    said(python, IMPORT)  # compiled
    assert min(float(said(python, IMPORT)) for _ in range(5)) <= MOST_IMPORT_SECONDS


def test_its_page_has_no_link_that_needs_the_repository(wheel: Path) -> None:
    files = ZipFile(wheel)
    [metadata] = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
    text = files.read(metadata).decode()
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(links) > 50
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
