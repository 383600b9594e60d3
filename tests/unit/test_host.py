"""Where bodies run: the threaded host by itself."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from fencepost.errors import ConfigurationError
from fencepost.execute import NotStarted
from fencepost.fire import current_fire
from fencepost.host import InlineHost, ThreadedHost
from fencepost.tasks import Task
from tests.unit.apps.waiting import eventually


def run_of(function, enter=lambda: None):
    fire = SimpleNamespace(key="job@1", args={})
    return SimpleNamespace(key="job@1", fire=fire, task=Task.of(function, "job"), enter=enter)


@pytest.fixture
async def host():
    host = ThreadedHost(asyncio.get_running_loop(), slots=2)
    yield host
    host.close()


def hosts():
    return [ThreadedHost(asyncio.get_running_loop(), slots=1), InlineHost()]


async def test_a_body_that_may_no_longer_start_is_not_called():
    def refuse():
        raise NotStarted

    called = []

    async def coroutine():
        called.append(1)

    for host in hosts():
        for function in (coroutine, lambda: called.append(1)):
            assert isinstance(await host.call(run_of(function, refuse)), NotStarted)
    assert not called


async def test_what_a_body_raises_reaches_the_caller():
    def plain():
        raise ValueError("plain")

    async def coroutine():
        raise ValueError("coroutine")

    for host in hosts():
        for function in (plain, coroutine):
            error = await host.call(run_of(function))
            assert isinstance(error, ValueError)
            assert str(error) == function.__name__


async def test_functions_run_beside_each_other_up_to_the_slots(host):
    barrier = threading.Barrier(2, timeout=2)
    await asyncio.gather(*(host.call(run_of(lambda: barrier.wait() and None)) for _ in range(2)))


async def test_a_cancelled_coroutine_counts_as_running_until_it_has_ended(host):
    log = []

    async def body():
        try:
            log.append("begun")
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.1)
            log.append("ended")

    call = asyncio.ensure_future(host.call(run_of(body)))
    await eventually(lambda: log)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert log == ["begun", "ended"]
    assert host.detached == 0


async def test_an_error_while_a_cancelled_coroutine_ends_is_told(host):
    begun = []

    async def body():
        begun.append(1)
        try:
            await asyncio.sleep(30)
        finally:
            raise ValueError("while ending")

    call = asyncio.ensure_future(host.call(run_of(body)))
    await eventually(lambda: begun)
    call.cancel()
    assert str(await call) == "while ending"


async def test_a_cancelled_thread_is_detached_until_it_returns(host):
    begun, release = threading.Event(), threading.Event()

    def body():
        begun.set()
        release.wait(3)
        raise ValueError("nobody listens any more")

    call = asyncio.ensure_future(host.call(run_of(body)))
    await eventually(begun.is_set)
    assert host.detached == 0
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert host.detached == 1
    release.set()
    await eventually(lambda: host.detached == 0)


async def test_a_thread_knows_its_fire_and_leaves_no_trace_of_it():
    host, seen = ThreadedHost(asyncio.get_running_loop(), slots=1), []
    await host.call(run_of(lambda: seen.append(current_fire().key)))
    leaked = await asyncio.get_running_loop().run_in_executor(host._threads, _current_or_none)
    host.close()
    assert seen == ["job@1"]
    assert leaked is None
    assert _current_or_none() is None


def _current_or_none():
    try:
        return current_fire()
    except ConfigurationError:
        return None
