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


def hold(lock: threading.Lock) -> None:
    """No fork while another thread has this lock."""
    _locks.add(lock)


_followed: weakref.WeakSet[Forked] = weakref.WeakSet()
_locks: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
_held: list[threading.Lock] = []


def _before() -> None:
    _held[:] = _locks
    for lock in _held:
        lock.acquire()


def _after() -> None:
    for lock in _held:
        lock.release()
    _held.clear()


def _after_in_child() -> None:
    _after()
    for each in list(_followed):
        each.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
