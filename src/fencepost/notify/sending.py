"""What all channels share: how they are named, threads, the limit of time, text without secrets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection
from typing import TypeGuard, TypeVar

from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.model.values import checked_id, clean_text
from fencepost.runs.threads import DaemonThreads
from fencepost.settings import duration

T = TypeVar("T")

MOST_THREADS = 8
HIDDEN = "***"
TEXT_LIMIT = 300
"""Characters of what a receiver said that are kept."""

_threads = DaemonThreads("fencepost-notify", MOST_THREADS)


def is_text(value: object, pattern: str) -> TypeGuard[str]:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def checked_name(name: object) -> str:
    return checked_id(name, "channel name")


def checked_seconds(value: object, what: str = "timeout") -> float:
    seconds = duration(value).total_seconds()
    if not 0.1 <= seconds <= 60:
        raise ConfigurationError(f"{what} is {seconds:g} s; give 100 ms to 60 s")
    return seconds


async def in_thread(work: Callable[[], T], seconds: float, abort: Callable[[], None] | None = None) -> T:
    """The answer of a function that blocks. After so many seconds, or if the caller gives up, `abort` must make it end:
    a receiver that sends a byte now and then would otherwise keep its thread for ever."""
    waiting = _threads.submit(work)
    answer = asyncio.wrap_future(waiting)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.shield(answer)
    except TimeoutError:
        raise DeliveryFailed(f"no answer within {seconds:g} s") from None
    finally:
        if not answer.done():
            answer.add_done_callback(
                lambda late: late.cancelled() or late.exception()
            )  # not "never retrieved"
            waiting.cancel()  # at once: a thread that is free now must not begin with it
            if abort is not None:
                abort()


def shown(text: str, secrets: Collection[str] = ()) -> str:
    """What a receiver or a library said, on one line."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    printable = "".join(
        letter if letter.isprintable() else " " for letter in clean_text(text[: 4 * TEXT_LIMIT])
    )
    return " ".join(printable.split())[:TEXT_LIMIT]
