"""`python -m soak.engines --engine celery --seconds 300`: fires handed to a real engine while replicas and workers are
killed, the broker is restarted and replies are cut off; every fire is judged. Exits 1 if anything was doubled,
unaccounted for, or lost without a reason."""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.engines.places import PLACES
from tests.engines.scene import LOST_REPLIES, TTL, Judged, play


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=PLACES, required=True)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rate", type=float, default=10.0, help="fires per second")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument(
        "--ttl", type=float, default=TTL, help="seconds; more on a machine with much else to do"
    )
    parser.add_argument(
        "--lost-replies",
        type=int,
        default=LOST_REPLIES,
        help="of so many writes, the reply to one is cut off",
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fencepost-engines-"))
    asked = options.seconds, options.rate, options.seed, options.ttl, options.lost_replies
    for told in play(options.engine, folder, *asked):
        print(told, flush=True)
        if isinstance(told, Judged):
            for violation in told.violations:
                print(f"VIOLATED {violation}")
            if not options.keep and not told.violations:
                _remove(folder)
            else:
                print(f"logs are in {folder}")
            return 1 if told.violations else 0
    return 1


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
