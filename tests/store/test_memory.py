"""The memory store: the conformance suite, and what only it does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from fencepost.store.base import NewFire, PutJob
from fencepost.store.memory import MemoryStore
from fencepost.testing.conformance import HandClock, Harness, job_of
from tests.protocol.comparison import ComparedStore


class TestMemory(ComparedStore):
    @pytest.fixture
    async def harness(self):
        clock = HandClock()
        store = MemoryStore(clock)
        await store.open()
        yield Harness.with_clock(store, clock)
        await store.close()


def test_it_is_not_shared() -> None:
    assert MemoryStore.shared is False


async def test_without_a_clock_it_uses_the_host_s() -> None:
    store = MemoryStore()
    first, second = await store.roster(), await store.roster()
    assert first.now <= second.now
    assert first.now.utcoffset() is not None


AFTER_A_FORK = """
import asyncio, os
from fencepost.errors import Fork
from fencepost.store.base import FireQuery
from fencepost.store.memory import MemoryStore
from tests.protocol.comparison import ComparedStore

store = MemoryStore()
asyncio.run(store.roster())
child = os.fork()
if child == 0:
    refused = 0
    for operation in (store.open, store.roster, store.jobs, lambda: store.find_fires(FireQuery())):
        try:
            asyncio.run(operation())
        except Fork as error:
            refused += "sqlite:///" in str(error)
    os._exit(refused)
_, status = os.waitpid(child, 0)
asyncio.run(store.roster())  # the parent goes on
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_it_refuses_after_a_fork() -> None:
    done = subprocess.run([sys.executable, "-c", AFTER_A_FORK], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("4", "")


def test_a_hint_reaches_another_event_loop_in_another_thread() -> None:
    store = MemoryStore()
    asyncio.run(store.put_jobs([PutJob(job_of("job"))]))
    waiting, hinted = threading.Event(), []

    async def wait() -> None:
        asyncio.get_running_loop().call_later(0.02, waiting.set)
        hinted.append(await store.wait(10))

    other = threading.Thread(target=lambda: asyncio.run(wait()))
    other.start()
    assert waiting.wait(5)
    asyncio.run(store.add_fire(NewFire("job!now", "job")))
    other.join(5)
    assert hinted == [True]


async def test_a_hint_reaches_everybody() -> None:
    store = MemoryStore()
    await store.put_jobs([PutJob(job_of("job"))])
    waiting = [asyncio.create_task(store.wait(10)) for _ in range(3)]
    await asyncio.sleep(0.01)
    await store.add_fire(NewFire("job!now", "job"))
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [True, True, True]


def test_a_loop_that_has_ended_gets_no_hint() -> None:
    store = MemoryStore()
    asyncio.run(store.put_jobs([PutJob(job_of("job"))]))
    loop = asyncio.new_event_loop()
    abandoned = loop.create_task(store.wait(10))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    assert asyncio.run(store.add_fire(NewFire("job!now", "job"))).outcome == "added"
    abandoned._log_destroy_pending = False  # type: ignore[attr-defined]
