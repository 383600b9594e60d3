"""A fork waits until no other thread is importing Fencepost.

A forked child has only the thread that forked. A module that another thread was just importing would stay half
imported there, and its import lock held for ever: whoever imports it in the child would wait without end. This happens
under `gunicorn --preload`, where threads of the application may import while workers are forked.
"""

from __future__ import annotations

import _frozen_importlib

# Both take a lock before a fork that an import may need. What is registered later is called earlier: ours must be.
import concurrent.futures.thread  # noqa: F401
import logging  # noqa: F401
import os
import threading
import time

PATIENCE = 10.0
"""Seconds. Longer than any import takes; a fork must not hang because one does."""
STEP = 0.005


def wait_for_imports() -> None:
    """Have every fork of this process wait. Called once."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_until_imported)


def _until_imported() -> None:
    for _ in range(round(PATIENCE / STEP)):
        importing = _importing_threads()
        # A thread that imports and forks meanwhile cannot wait for itself, nor for one that waits for it.
        if not importing or threading.get_ident() in importing:
            return
        time.sleep(STEP)


def _importing_threads() -> set[int]:
    """Those that hold the import lock of a module of ours. Nothing public tells; where the locks are not found, no
    fork waits."""
    locks = getattr(_frozen_importlib, "_module_locks", {})
    found = (reference() for name, reference in list(locks.items()) if name.startswith("fencepost"))
    owners = {getattr(lock, "owner", None) for lock in found}
    return {owner for owner in owners if owner is not None}
