"""What the machine did to somebody else meanwhile: the noise in every lateness that was measured beside it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

EVERY = 0.02


class Pulse:
    """Fifty times a second: wake up, append 200 bytes, wait until they are on the disk. Keeps how long after its time
    each was done. No fire of a store that waits for the disk can be expected to start earlier."""

    def __init__(self, folder: Path) -> None:
        self.late: list[float] = []
        self._path = folder / "pulse.log"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            due = time.perf_counter()
            while not self._ended.is_set():
                due = max(due + EVERY, time.perf_counter())
                time.sleep(max(0.0, due - time.perf_counter()))
                os.write(descriptor, b"x" * 200)
                os.fdatasync(descriptor)
                self.late.append(time.perf_counter() - due)
        finally:
            os.close(descriptor)
