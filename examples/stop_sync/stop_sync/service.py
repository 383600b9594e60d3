"""The scheduler service: `python -m stop_sync.service`. Start as many as you like: each fire runs once.

With probes and metrics: `fencepost serve stop_sync.service:scheduler`.
"""

from __future__ import annotations

import logging
import os
import sys

from fencepost import FencepostError, Scheduler, every
from fencepost.clock import SystemClock
from stop_sync.pipeline import pipeline_of
from stop_sync.settings import Settings


def scheduler_of(settings: Settings) -> Scheduler:
    """A fixed grid, start to start. The store keeps its anchor: a restart moves nothing, and fires that were missed
    meanwhile are on record and made up for by one run. A grid that is restarted forgets all that: its first fire is
    one interval after the start, whatever was due before."""
    settings.make_folders()
    scheduler = Scheduler(**settings.scheduling)
    anchor = SystemClock().wall() if settings.restart_grid else None
    calendar = every(settings.interval, anchor=anchor)
    scheduler.job(calendar, timeout=settings.lock_ttl)(pipeline_of(settings))
    return scheduler


def main() -> int:
    try:
        settings = Settings.of(os.environ)
        logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=settings.log_level)
        scheduler = scheduler_of(settings)
        logging.getLogger("stop_sync").info("on %s; Ctrl-C stops", scheduler.store_name)
        scheduler.run()
    except FencepostError as error:
        print(f"stop_sync: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def __getattr__(name: str) -> Scheduler:
    """`stop_sync.service:scheduler`, made when it is asked for: who imports this module may have other settings."""
    if name != "scheduler":
        raise AttributeError(name)
    made = globals()[name] = scheduler_of(Settings.of(os.environ))
    return made


if __name__ == "__main__":
    sys.exit(main())
