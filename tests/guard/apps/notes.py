"""What the sample applications' jobs leave behind: one line per run, in a file that is not the store."""

from __future__ import annotations

import os
import time

from fencepost import ConfigurationError, current_fire


def note(job: str) -> None:
    """One write with O_APPEND: lines of several processes never mix, and outlive a kill."""
    try:
        key = current_fire().key
    except ConfigurationError:  # not guarded
        key = "-"
    file = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{job} {key} {os.getpid()} {time.time():.6f}\n".encode())
    finally:
        os.close(file)
