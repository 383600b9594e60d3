"""Single-instance mode: one process schedules, the others stand by.

    scheduler = Scheduler(single_instance=True)
    scheduler = Scheduler(single_instance=SingleInstance(workers="APP_WORKERS", strict=True))

All jobs run on the leader alone. A process that loses the election serves without scheduling, and takes over when the
leader is gone. For applications that must not be started with several workers at all there is a check before the start:
a declared number of workers other than 1 aborts it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fencepost.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class SingleInstance:
    workers: str = "WEB_CONCURRENCY"
    """The variable in which the number of workers is declared."""
    strict: bool = False
    """Whether it must be declared."""

    def check(self, env: Mapping[str, str] | None = None) -> None:
        """Raise unless one worker is declared, or none where that is allowed."""
        declared = (os.environ if env is None else env).get(self.workers, "").strip()
        if declared == "1" or (not declared and not self.strict):
            return
        what = f"{self.workers} is {declared!r}" if declared else f"{self.workers} is not set"
        raise ConfigurationError(
            f"{what}, but this application runs as a single instance: set {self.workers}=1 and start one worker, or "
            "leave out single_instance, and any number of workers runs every job once"
        )
