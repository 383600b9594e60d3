"""What follows a fork into the child, and what waits for one."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable

from fencepost.runs.threads import DaemonThreads
from fencepost.store import forks


def in_child(check: Callable[[], bool]) -> bool:
    """Whether it holds there."""
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if check() else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


class Follower:
    def __init__(self) -> None:
        self.told = 0
        forks.follow(self)

    def after_fork(self) -> None:
        self.told += 1


def test_only_the_child_is_told_and_only_as_long_as_somebody_has_it() -> None:
    [follower] = followers = [Follower()]
    assert in_child(lambda: followers[0].told == 1)
    assert follower.told == 0
    kept = weakref.ref(follower)
    del follower
    followers.clear()
    gc.collect()
    assert kept() is None


def test_a_fork_waits_until_no_thread_puts_it_off() -> None:
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with forks.put_off:
            entered.set()
            leave.wait(60)
            worked.append(1)

    worked: list[int] = []
    other = threading.Thread(target=work)
    other.start()
    entered.wait(60)
    threading.Timer(0.2, leave.set).start()

    def enters() -> bool:
        with forks.put_off:
            return worked == [1]

    assert in_child(enters)
    other.join()
    assert enters()


def test_forks_take_their_turn_among_threads_that_always_put_them_off() -> None:
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            with forks.put_off:
                time.sleep(0.001)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    forking = [threading.Thread(target=lambda: forked.append(in_child(lambda: True))) for _ in range(4)]
    forked: list[bool] = []
    for each in forking:
        each.start()
    for each in forking:
        each.join(60)
    ended.set()
    for worker in workers:
        worker.join(60)
    assert forked == [True] * 4


def test_a_pool_starts_threads_of_its_own_in_the_child() -> None:
    threads = DaemonThreads("fencepost-test", 2)

    def works() -> bool:
        return threads.submit(lambda: 42).result(60) == 42

    assert works()
    while (
        threads._outstanding
    ):  # until its thread waits for more, as in a parent that has been at work for a while
        time.sleep(0.001)
    assert in_child(works)
    assert works()
    threads.close()
