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


def test_a_fork_waits_for_a_lock_that_another_thread_has() -> None:
    lock, taken, let_go = threading.Lock(), threading.Event(), threading.Event()
    forks.hold(lock)

    def work() -> None:
        with lock:
            taken.set()
            let_go.wait(60)
            worked.append(1)

    worked: list[int] = []
    other = threading.Thread(target=work)
    other.start()
    taken.wait(60)
    threading.Timer(0.2, let_go.set).start()
    assert in_child(lambda: worked == [1] and lock.acquire(timeout=1))
    other.join()
    assert not lock.locked()


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
