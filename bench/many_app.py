"""Several replicas in one process, each with a control thread and connections of its own: see `bench.many`."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import AsyncExitStack

from tests.cluster.apps.load import Load, end_with


async def run(number: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with AsyncExitStack() as stack:
        for _ in range(number):
            await stack.enter_async_context(Load().scheduler())
        await stopped.wait()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    end_with(int(os.environ["LOAD_PARENT"]))
    asyncio.run(run(int(os.environ["MANY_SCHEDULERS"])))
