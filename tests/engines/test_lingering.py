"""How long a worker process that was refused stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

from fencepost.engine_worker.gate import Gate
from fencepost.engine_worker.lingering import linger
from fencepost.errors import StoreUnavailable
from fencepost.model import FireRecord
from fencepost.store.base import Claim
from tests.engines.orders import an_order

ORDER = an_order("kubernetes", heartbeat=0.2, ttl=0.4)
Read = Callable[[], int | None]
"""The heartbeats of the run that was let in; None: it is over."""


class Scripted:
    """Answers by a list, the last for ever."""

    def __init__(self, *reads: Read) -> None:
        self._reads = list(reads)
        self.asked = 0

    async def claim(self, order: object) -> Claim | None:
        self.asked += 1
        beats = (self._reads.pop(0) if len(self._reads) > 1 else self._reads[0])()
        if beats is None:
            return None
        fire = cast(FireRecord, FireStub({"beats": beats}))
        return Claim(fire, cast(Any, None))


class FireStub:
    def __init__(self, remote: dict[str, int]) -> None:
        self.remote = remote


async def lingered(gate: Scripted) -> float:
    begun = time.monotonic()
    async with asyncio.timeout(60):
        await linger(ORDER, cast(Gate, gate))
    return time.monotonic() - begun


async def test_it_ends_with_the_run_that_was_let_in() -> None:
    gate = Scripted(lambda: 1, lambda: 2, lambda: None)
    await lingered(gate)
    assert gate.asked == 3


async def test_it_ends_when_that_run_sends_no_heartbeats() -> None:
    assert await lingered(Scripted(lambda: 1)) >= 0.6


async def test_a_process_that_was_halted_for_long_has_observed_nothing() -> None:
    """The run may have sent heartbeats meanwhile, or was halted as well, with the machine."""

    def then_a_halt() -> int:
        asyncio.get_running_loop().call_later(0.01, time.sleep, 1.2)
        return 1

    gate = Scripted(then_a_halt, lambda: 1, lambda: 2, lambda: None)
    await lingered(gate)
    assert gate.asked == 4


async def test_an_error_of_the_store_proves_nothing() -> None:
    def away() -> int:
        raise StoreUnavailable("away")

    gate = Scripted(lambda: 1, *[away] * 8, lambda: None)
    await lingered(gate)
    assert gate.asked == 10
