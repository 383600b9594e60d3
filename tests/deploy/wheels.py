"""The wheel, built as for a release."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 180.0


def build_wheel(folder: Path) -> Path:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(pip, check=True, timeout=PATIENCE)
    return next(folder.glob("fencepost-*.whl"))


def install(wheel: Path, folder: Path) -> Path:
    """In a new virtual environment without pip; gives its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=PATIENCE)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", str(wheel)]
    subprocess.run(pip, check=True, timeout=PATIENCE)
    return python
