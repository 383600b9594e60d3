"""A host name whose address can be changed, for the processes that are started with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import Server

SOURCE = Path(__file__).parent / "names.c"


@dataclass(frozen=True)
class MovingName:
    env: dict[str, str]
    """For a process that shall know the name."""
    host: str = "moving.test"

    def lead_to(self, server: Server) -> None:
        path = Path(self.env["NAMES_FILE"])
        written = path.with_suffix(".new")
        written.write_text(f"{server.host} {server.port}\n")
        written.rename(path)


@contextmanager
def moving_name() -> Iterator[MovingName | None]:
    """None: it takes Linux and a C compiler (cc)."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-names-") as name:
        shim = Path(name) / "names.so"
        subprocess.run([compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", shim, SOURCE, "-ldl"], check=True)
        yield MovingName({"LD_PRELOAD": str(shim), "NAMES_FILE": str(Path(name) / "address")})
