"""Where bodies run: the threaded host by itself."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest

from fencepost.errors import ConfigurationError
from fencepost.runs.fire import current_fire
from fencepost.runs.host import InlineHost, Mailbox, ThreadedHost
from fencepost.runs.run import NotStarted
from fencepost.runs.tasks import Task
from tests.unit.apps.waiting import eventually


class Body:
    """What a host sees of a run; its end can be waited for."""

    def __init__(self, function, enter=lambda: None):
        self.key = "job@1"
        self.fire = SimpleNamespace(key="job@1", args={})
        self.task = Task.of(function, "job")
        self.enter = enter
        self.outlived = False
        self.end = asyncio.get_running_loop().create_future()
        self.body = self.cause = self.variables = None
        self.context = SimpleNamespace(descriptors=(), room_changed=lambda: None, outlived=lambda: None)

    def returned(self, value):
        """Results are the run's affair."""

    def ended(self, error):
        self.end.set_result(error)  # raises if it is told twice


async def call(host, function, enter=lambda: None):
    body = Body(function, enter)
    host.begin([body])
    return await asyncio.wait_for(body.end, 20)


def begun(host, function):
    body = Body(function)
    host.begin([body])
    return body


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
            assert isinstance(await call(host, function, refuse), NotStarted)
    assert not called


async def test_what_a_body_raises_reaches_the_caller():
    def plain():
        raise ValueError("plain")

    async def coroutine():
        raise ValueError("coroutine")

    for host in hosts():
        for function in (plain, coroutine):
            error = await call(host, function)
            assert isinstance(error, ValueError)
            assert str(error) == function.__name__


async def test_functions_run_beside_each_other_up_to_the_slots(host):
    barrier = threading.Barrier(2, timeout=2)
    assert await asyncio.gather(*(call(host, barrier.wait) for _ in range(2))) == [None, None]


async def test_a_cancelled_coroutine_counts_as_running_until_it_has_ended(host):
    log = []

    async def body():
        try:
            log.append("begun")
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.1)
            log.append("ended")

    run = begun(host, body)
    await eventually(lambda: log)
    host.cancel(run)
    assert isinstance(await run.end, asyncio.CancelledError)
    assert log == ["begun", "ended"]
    assert host.detached == 0


async def test_an_error_while_a_cancelled_coroutine_ends_is_told(host):
    log = []

    async def body():
        log.append("begun")
        try:
            await asyncio.sleep(30)
        finally:
            raise ValueError("while ending")

    run = begun(host, body)
    await eventually(lambda: log)
    host.cancel(run)
    assert str(await run.end) == "while ending"


async def test_a_cancelled_thread_is_detached_until_it_returns(host):
    entered, release = threading.Event(), threading.Event()

    def body():
        entered.set()
        release.wait(3)
        raise ValueError("nobody listens any more")

    run = begun(host, body)
    await eventually(entered.is_set)
    assert host.detached == 0
    host.cancel(run)
    host.cancel(run)  # told twice, detached once
    assert isinstance(await run.end, asyncio.CancelledError)
    assert (host.detached, host.lingering) == (1, ("job@1",))
    release.set()
    await eventually(lambda: host.detached == 0)
    assert host.lingering == ()


async def test_a_thread_knows_its_fire_and_leaves_no_trace_of_it():
    host, seen = ThreadedHost(asyncio.get_running_loop(), slots=1), []
    await call(host, lambda: seen.append(current_fire().key))
    leaked = asyncio.get_running_loop().create_future()
    host._threads.submit(
        lambda: leaked.get_loop().call_soon_threadsafe(leaked.set_result, _current_or_none())
    )
    assert await leaked is None
    host.close()
    assert seen == ["job@1"]
    assert _current_or_none() is None


def _current_or_none():
    try:
        return current_fire()
    except ConfigurationError:
        return None


async def test_calls_for_another_loop_are_all_taken_however_many_threads_put_them():
    taken = []
    mailbox = Mailbox(asyncio.get_running_loop())

    def put():
        for number in range(2_000):
            mailbox.put(lambda number=number: taken.append(number))

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    await eventually(lambda: len(taken) == 8_000)
    assert sorted(taken) == sorted(list(range(2_000)) * 4)


async def test_calls_that_are_put_together_wake_the_other_loop_once(monkeypatch):
    taken, woken = [], Counter()
    with other_loop() as loop:
        mailbox = Mailbox(loop)
        count_wake_ups(monkeypatch, woken, there=loop)
        mailbox.put(*(partial(taken.append, number) for number in range(10)))
        await eventually(lambda: len(taken) == 10)
        assert taken == list(range(10))
        assert woken == {"there": 1}


async def test_coroutines_that_are_begun_together_are_begun_and_reported_with_one_wake_up_each(monkeypatch):
    """A system call and a switch of threads per body was a fifth of the time of a replica under load."""

    async def body():
        pass

    woken = Counter()
    with other_loop() as loop:
        host = ThreadedHost(loop, slots=10)
        count_wake_ups(monkeypatch, woken, here=asyncio.get_running_loop(), there=loop)
        bodies = [Body(body) for _ in range(10)]
        host.begin(bodies)
        assert await asyncio.wait_for(asyncio.gather(*(each.end for each in bodies)), 20) == [None] * 10
        assert woken == {"here": 1, "there": 1}
        host.close()


def count_wake_ups(monkeypatch, woken, **loops):
    """Each of them lets the other thread go on at once, as the system call often does."""

    def noted(name, ring, call):
        woken[name] += 1
        ring(call)
        time.sleep(0.01)

    for name, loop in loops.items():
        monkeypatch.setattr(loop, "call_soon_threadsafe", partial(noted, name, loop.call_soon_threadsafe))


@contextmanager
def other_loop():
    """One that runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


async def test_a_call_that_fails_does_not_keep_the_others_from_being_taken():
    taken, failed = [], []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    mailbox = Mailbox(loop)
    mailbox.put(lambda: 1 / 0)
    mailbox.put(lambda: taken.append(1))
    await eventually(lambda: taken)
    assert isinstance(failed[0], ZeroDivisionError)


async def test_a_body_whose_loop_has_ended_is_told_to_have_failed():
    gone = asyncio.new_event_loop()
    gone.close()
    host = ThreadedHost(gone, slots=1)

    async def body():
        raise AssertionError("nobody can run this")

    for _ in range(2):
        assert isinstance(await call(host, body), RuntimeError)
