"""Forks. A child has only the thread that forked: threads, locks and connections of its parent are not its own."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    def after_fork(self) -> None:
        """In a forked child: let go of what is the parent's, and be as if nothing had been started."""


def follow(each: Forked) -> None:
    """Call its `after_fork` in every forked child, as long as it lives."""
    _followed.add(each)


class PutOff:
    """No process forks while one of its threads is in here: `with forks.put_off`. For a library that keeps locks of its
    own in memory, as SQLite does: of a thread that has one, the child gets the lock and not the thread.

    Not to be entered twice by one thread, nor for long: forks wait, and so do those who would enter after them.
    """

    def __init__(self) -> None:
        self.after_in_child()

    def after_in_child(self) -> None:
        self._door = threading.Condition(threading.Lock())
        self._inside = 0
        self._forking = False

    def __enter__(self) -> None:
        with self._door:
            while self._forking:
                self._door.wait()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._door:
            self._inside -= 1
            self._door.notify_all()

    def before(self) -> None:
        with self._door:
            while self._forking:  # another thread
                self._door.wait()
            self._forking = True
            while self._inside:
                self._door.wait()

    def after_in_parent(self) -> None:
        with self._door:
            self._forking = False
            self._door.notify_all()


put_off = PutOff()

_followed: weakref.WeakSet[Forked] = weakref.WeakSet()


def _after_in_child() -> None:
    put_off.after_in_child()
    for each in list(_followed):
        each.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=put_off.before, after_in_parent=put_off.after_in_parent, after_in_child=_after_in_child
    )
