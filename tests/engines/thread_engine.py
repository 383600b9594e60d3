"""An engine of threads in this process: the smallest real one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from fencepost.engine_worker import Verdict, carry_out
from fencepost.runs.engines import GONE, RUNNING, Order, Ref, Sighting, ended

Work = Callable[[str], Verdict]


class ThreadEngine:
    """Delivers each order `times` times at once. It keeps nothing of a ref that it was told to forget."""

    def __init__(self, times: int = 1, work: Work = carry_out) -> None:
        self.times = times
        self.work = work
        self.orders: list[Order] = []
        self.verdicts: list[str] = []
        self.forgotten: list[Ref] = []
        self._runs: dict[Ref, list[Verdict | None]] = {}

    async def submit(self, order: Order) -> None:
        if order.ref in self._runs:
            return
        self.orders.append(order)
        self._runs[order.ref] = [None] * self.times
        for n in range(self.times):
            threading.Thread(target=self._deliver, args=(order, n), daemon=True).start()

    def _deliver(self, order: Order, number: int) -> None:
        runs = self._runs[order.ref]
        verdict = self.work(order.text)
        runs[number] = verdict
        self.verdicts.append(verdict.kind)

    async def poll(self, refs: Sequence[Ref]) -> Mapping[Ref, Sighting]:
        return {ref: self._sighting(ref) for ref in refs}

    def _sighting(self, ref: Ref) -> Sighting:
        runs = self._runs.get(ref)
        if runs is None:
            return GONE
        if None in runs:
            return RUNNING
        kinds = {verdict.kind for verdict in runs if verdict is not None}
        return ended("failed" not in kinds, "failed" if "failed" in kinds else None)

    async def stop(self, ref: Ref) -> None:
        """A thread cannot be stopped."""

    async def forget(self, ref: Ref) -> None:
        self.forgotten.append(ref)
        self._runs.pop(ref, None)
