"""`python -m tests.web.apps.limited 1024 serve …`: the command line with so few descriptors."""

from __future__ import annotations

import resource
import sys

from fencepost import Scheduler, every
from fencepost.cli import main

scheduler = Scheduler()


@scheduler.job(every(seconds=1))
async def tick() -> None: ...


if __name__ == "__main__":
    number = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
    main(sys.argv[2:])
