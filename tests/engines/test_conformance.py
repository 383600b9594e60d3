import asyncio
import threading

import pytest

from fencepost.engine_worker import Verdict
from fencepost.testing.engines import EngineConformance, EngineRig
from tests.engines.thread_engine import ThreadEngine


class TestThreads(EngineConformance):
    @pytest.fixture
    async def rig(self):
        received: list[str] = []
        go, outcomes = threading.Event(), [True]

        def work(text: str) -> Verdict:
            received.append(text)
            assert go.wait(30)
            return Verdict("succeeded" if outcomes[-1] else "failed")

        async def finish(succeeds: bool) -> None:
            outcomes.append(succeeds)
            go.set()
            await asyncio.sleep(0)

        yield EngineRig(ThreadEngine(work=work), received, finish)
        go.set()
