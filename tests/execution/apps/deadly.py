"""A replica with a job that kills the process it runs in, and one that only works."""

from __future__ import annotations

import os

from fencepost import every
from tests.cluster.apps.load import Load, end_with


def main() -> None:
    load = Load()
    end_with(load.parent)
    scheduler = load.scheduler()

    @scheduler.job(every(days=300), id="deadly", after_crash="rerun")
    def deadly() -> None:
        os.kill(os.getpid(), 9)

    scheduler.run()


if __name__ == "__main__":
    main()
