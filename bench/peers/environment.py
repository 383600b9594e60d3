"""Virtual environments for the peers, apart from Fencepost's own: `python -m bench.peers.environment` makes them.

Each file in `environments/` names the packages of one environment with their exact versions.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTS = Path(__file__).parent / "environments"
PLACE = ROOT / "build" / "peers"
OURS = ""
"""The environment that Fencepost itself runs in."""


def names() -> list[str]:
    return sorted(path.stem for path in LISTS.glob("*.txt"))


def python_of(name: str) -> str:
    return str(PLACE / name / "bin" / "python") if name else sys.executable


def installed(name: str) -> bool:
    """Whether it holds exactly what its list says. The copy of the list is written last."""
    copy = PLACE / name / "installed.txt"
    return not name or (copy.exists() and copy.read_text() == (LISTS / f"{name}.txt").read_text())


def install(name: str, progress: Callable[[str], object] = print) -> None:
    if installed(name):
        return
    progress(f"installing the peers of {name}.txt into {PLACE.relative_to(ROOT) / name} (a minute)")
    subprocess.run([sys.executable, "-m", "venv", "--clear", PLACE / name], check=True)
    pip = [python_of(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, "-r", LISTS / f"{name}.txt"], check=True)
    (PLACE / name / "installed.txt").write_text((LISTS / f"{name}.txt").read_text())


def version(name: str, package: str) -> str:
    """Of a package, as its environment's list has it."""
    for line in (LISTS / f"{name}.txt").read_text().splitlines():
        found, _, number = line.partition("==")
        if found.lower() == package.lower():
            return number
    raise LookupError(f"{package} is not in environments/{name}.txt")


if __name__ == "__main__":
    for each in names():
        install(each)
