"""A disk that can be full, for the PostgreSQL server that is started with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "full.c"


@dataclass(frozen=True)
class Disk:
    env: dict[str, str]
    """For the server that shall have this disk."""

    def fill(self) -> None:
        Path(self.env["FULL_FILE"]).touch()

    def free(self) -> None:
        Path(self.env["FULL_FILE"]).unlink()


@contextmanager
def disk() -> Iterator[Disk | None]:
    """None: it takes Linux and a C compiler (cc)."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-disk-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a server may run as somebody else
        shim = folder / "full.so"
        subprocess.run([compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", shim, SOURCE, "-ldl"], check=True)
        yield Disk({"LD_PRELOAD": str(shim), "FULL_FILE": str(folder / "full")})
