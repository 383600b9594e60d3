"""Full garbage collections, kept short in processes of our own.

A full collection visits every object, and no thread can do anything meanwhile: with 10,000 jobs a fire waits 150 ms
for it. Most of what it visits stays for good. So what one has found alive is left out of those that follow
(`gc.freeze`). It is freed all the same when nothing refers to it any more; only what refers to itself waits for the
next collection of everything.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fencepost.clock import Clock, SystemClock

EVERYTHING_AFTER = 600.0
"""Seconds after which a full collection visits everything again."""


class ShortCollections:
    """For `gc.callbacks`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._everything_at = clock.steady() + EVERYTHING_AFTER

    def __call__(self, phase: str, info: Mapping[str, Any]) -> None:
        if info["generation"] < 2:
            return
        if phase == "stop":
            gc.freeze()
        elif self._clock.steady() >= self._everything_at:
            self._everything_at = self._clock.steady() + EVERYTHING_AFTER
            gc.unfreeze()


@contextmanager
def short_collections(clock: Clock | None = None) -> Iterator[None]:
    """Also freezes the objects that exist now: most of them stay for good."""
    gc.freeze()
    watching = ShortCollections(clock or SystemClock())
    gc.callbacks.append(watching)
    try:
        yield
    finally:
        gc.callbacks.remove(watching)
