"""The path of one fire through the source: which functions it passes, in how many files, and how often it changes file.

    python -m bench.path --store postgres          the counts; --calls lists every call in order

One scheduler with one job runs on the store. The profiler is switched on for the time between a fire's due time and the
end of its settle; heartbeats and planning do not fall into that window. What is counted is our own code on all threads.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from bench.places import STORES, a_place

import fencepost
from fencepost import Scheduler, at

SOURCE = str(Path(fencepost.__file__).parent)
ANONYMOUS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>", "<module>")
WARM_UP = 2.0
"""Seconds between two fires: long enough for all that the first one leaves behind to be over."""


@dataclass
class Trail:
    """Calls in the order in which they were made, as (file, function)."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    recording: bool = False

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith(SOURCE) and code.co_name not in ANONYMOUS
        if self.recording and event == "call" and ours:
            self.calls.append((code.co_filename.removeprefix(SOURCE + "/"), code.co_qualname))

    @property
    def functions(self) -> set[tuple[str, str]]:
        return set(self.calls)

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.calls}

    @property
    def changes_of_file(self) -> int:
        return sum(1 for one, other in zip(self.calls, self.calls[1:], strict=False) if one[0] != other[0])


@contextmanager
def profiled(trail: Trail) -> Iterator[None]:
    threading.setprofile(trail.profile)
    sys.setprofile(trail.profile)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def follow(url: str) -> Trail:
    trail = Trail()
    with profiled(trail):
        scheduler = Scheduler(url, namespace="path")
        settled = [asyncio.Event(), asyncio.Event()]
        now = datetime.now(UTC)
        moments = [now + timedelta(seconds=3), now + timedelta(seconds=3 + WARM_UP)]

        @scheduler.job(at(*moments), id="followed")
        async def followed() -> None: ...

        @scheduler.on("succeeded")
        async def note(_: object) -> None:
            next(event for event in settled if not event.is_set()).set()

        async with scheduler:
            await asyncio.wait_for(settled[0].wait(), 30)
            await asyncio.sleep(WARM_UP / 2)
            trail.recording = True
            await asyncio.wait_for(settled[1].wait(), 30)
            trail.recording = False
    return trail


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", choices=STORES, default="postgres")
    parser.add_argument("--calls", action="store_true", help="list every call in order")
    options = parser.parse_args(arguments)
    with a_place(options.store) as place:
        trail = asyncio.run(follow(place.url))
    if options.calls:
        for file, function in trail.calls:
            print(f"{file}  {function}")
    print(
        f"{options.store}: {len(trail.functions)} functions in {len(trail.files)} files, {len(trail.calls)} calls, "
        f"{trail.changes_of_file} changes of file"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
