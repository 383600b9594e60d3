"""One run by hand: `python -m stop_sync.job_runner --mode full --trigger manual`.

Exit codes: 0 succeeded, 1 failed, 2 another run is active, 64 usage, 69 no store, 78 configuration.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from fencepost import ConfigurationError, UsageError
from fencepost.cli import outcome
from stop_sync.settings import Settings

TARGET, JOB = "stop_sync.service:scheduler", "stops"


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Not 2, as usual: that says here that another run is active."""
        self.exit(UsageError.exit_code, f"{self.format_usage()}{self.prog}: {message}\n")


def options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="python -m stop_sync.job_runner", description="Run the pipeline once, now.")
    parser.add_argument("--mode", choices=["full", "match-import"], default="full")
    parser.add_argument("--trigger", default="manual", metavar="NAME", help="what the status says of it")
    parser.add_argument("--force", action="store_true", help="as if the sources had changed")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--here", action="store_true", help="in this process, the default")
    where.add_argument("--service", action="store_true", help="by a service that runs; waits for its end")
    return parser.parse_args(words)


def forced() -> bool:
    """By the caller's PIPELINE_FORCE_FULL_REFRESH: it counts also if a service takes the run, which has its own value.
    What is wrong with the other variables is said by the run."""
    try:
        return Settings.of(os.environ).force_full_refresh
    except ConfigurationError:
        return False


def main(words: Sequence[str] | None = None) -> int:
    given = options(words)
    place = "--wait" if given.service else "--here"
    force = ["--force"] if given.force or forced() else []
    return outcome(["trigger", TARGET, JOB, "--mode", given.mode, "--trigger", given.trigger, *force, place])


if __name__ == "__main__":
    sys.exit(main())
