"""A wall clock that can be set, for the processes that are started with it."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "skew.c"


@dataclass
class Clock:
    env: dict[str, str]
    """For a process that shall have this clock."""
    offset: int = 0
    """Seconds by which it is off."""

    def set(self, offset: int) -> None:
        self.offset = offset
        # In place: those who have mapped the file would be killed if it had no content even for a moment.
        with Path(self.env["SKEW_FILE"]).open("r+b", buffering=0) as file:
            file.write(struct.pack("=q", offset * 1_000_000_000))


@contextmanager
def clock() -> Iterator[Clock | None]:
    """None: it takes Linux and a C compiler (cc)."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-clock-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a server may run as somebody else
        shim = folder / "skew.so"
        options = ["-O2", "-Wall", "-shared", "-fPIC", "-o", str(shim), str(SOURCE), "-ldl"]
        subprocess.run([compiler, *options], check=True)
        skew = folder / "skew"
        skew.write_bytes(bytes(8))
        yield Clock({"LD_PRELOAD": str(shim), "SKEW_FILE": str(skew)})
