"""A worker process that was refused waits until the run that was let in is over.

Some engines take the end of one process for the end of the order: Kubernetes completes a Job when one of its pods ends
with 0, and ends the others. So a second pod must not end before the first.
"""

from __future__ import annotations

import asyncio

from fencepost.clock import SystemClock
from fencepost.engine_worker.gate import Gate
from fencepost.errors import StoreUnavailable
from fencepost.runs.engines import Order

SILENT_FOR = 1.5
"""TTLs without a heartbeat after which the run that was let in counts as dead: then this is all that is left of the
order, and ends so that the engine says so."""
LONGEST_GAP = 3.0
"""Heartbeats between two looks. After a longer one this process was halted, perhaps with all others on its machine, and
has not observed anything."""


async def linger(order: Order, gate: Gate) -> None:
    clock = SystemClock()
    heard, checked_at = None, clock.steady()
    since = checked_at
    while True:
        try:
            claim = await gate.claim(order)
        except StoreUnavailable:
            since = checked_at = clock.steady()
        else:
            if claim is None:
                return
            now, heartbeats = clock.steady(), (claim.fire.remote or {}).get("beats")
            if heartbeats != heard or now > checked_at + LONGEST_GAP * order.heartbeat:
                heard, since = heartbeats, now
            elif now > since + SILENT_FOR * order.ttl:
                return
            checked_at = now
        await asyncio.sleep(order.heartbeat)
