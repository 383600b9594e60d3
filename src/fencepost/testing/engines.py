"""The suite for an engine of your own: what Fencepost relies on, one small test per rule.

    class TestMine(EngineConformance):
        @pytest.fixture
        async def rig(self):
            received = []                      # your workers put here the JSON of each order they get, and wait
            …
            yield EngineRig(MyEngine(), received, finish=…)

An engine need not be good: it may repeat, lose and delay. It must not say what it does not know. Needs `pytest-asyncio`
in auto mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest

from fencepost.runs.engines import Engine, Order, Ref, Sighting, ref_of

PATIENCE = 30.0
LIVE = ("waiting", "running", "unsure")


@dataclass
class EngineRig:
    """An engine with workers, which hold each order that they get until they are told to finish."""

    engine: Engine
    received: Sequence[str]
    """The JSON of the orders that workers got, in the order of their arrival."""
    finish: Callable[[bool], Awaitable[None]]
    """Let the workers end what they hold: with a success, or a failure."""
    options: dict[str, object] | None = None

    def order(self, key: str = "report@2026-11-15T12:00:00.000000Z", token: int = 1) -> Order:
        ref = ref_of("default", key, token)
        values = {"namespace": "default", "key": key, "token": token, "job_id": "report", "target": "report"}
        more = {
            "due_at": "2026-11-15T12:00:00.000000Z",
            "args": {"region": "ch"},
            "options": self.options or {},
        }
        return Order(ref=ref, engine="mine", **values, **more)  # type: ignore[arg-type]

    async def sighting(self, ref: Ref) -> Sighting:
        return dict(await self.engine.poll([ref]))[ref]

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await condition():  # noqa: ASYNC110 - the engine notifies no one
                await asyncio.sleep(0.05)

    async def arrived(self, number: int = 1) -> None:
        async def enough() -> bool:
            return len(self.received) >= number

        await self.until(enough)


class EngineConformance:
    @pytest.fixture
    async def rig(self) -> EngineRig:
        raise NotImplementedError("give a fixture `rig`")

    async def test_an_order_arrives_as_it_was_sent(self, rig: EngineRig) -> None:
        order = rig.order()
        await rig.engine.submit(order)
        await rig.arrived()
        assert Order.from_json(rig.received[0]) == order
        await rig.finish(True)

    async def test_an_order_that_waits_or_runs_is_not_called_over(self, rig: EngineRig) -> None:
        order = rig.order()
        await rig.engine.submit(order)
        assert (await rig.sighting(order.ref)).kind in LIVE
        await rig.arrived()
        assert (await rig.sighting(order.ref)).kind in LIVE
        await rig.finish(True)

    async def test_the_same_ref_twice_is_no_error(self, rig: EngineRig) -> None:
        order = rig.order()
        await rig.engine.submit(order)
        await rig.engine.submit(order)
        await rig.arrived()
        await rig.finish(True)
        assert {Order.from_json(text).ref for text in rig.received} == {order.ref}

    async def test_two_orders_are_two(self, rig: EngineRig) -> None:
        first, second = rig.order(token=1), rig.order(token=2)
        await rig.engine.submit(first)
        await rig.engine.submit(second)
        seen = await rig.engine.poll([first.ref, second.ref])
        assert {sighting.kind for sighting in seen.values()} <= set(LIVE)
        await rig.arrived(2)
        await rig.finish(True)
        assert {Order.from_json(text).token for text in rig.received} == {1, 2}

    async def test_of_an_unknown_ref_it_says_gone_or_unsure(self, rig: EngineRig) -> None:
        seen = await rig.engine.poll([rig.order(token=9).ref])
        assert {sighting.kind for sighting in seen.values()} <= {"gone", "unsure"}

    async def test_unknown_refs_are_stopped_and_forgotten(self, rig: EngineRig) -> None:
        await rig.engine.stop(rig.order(token=9).ref)
        await rig.engine.forget(rig.order(token=9).ref)

    @pytest.mark.parametrize("succeeds", [True, False])
    async def test_an_end_is_not_called_a_run(self, rig: EngineRig, succeeds: bool) -> None:
        order = rig.order()
        await rig.engine.submit(order)
        await rig.arrived()
        await rig.finish(succeeds)

        async def over() -> bool:
            return (await rig.sighting(order.ref)).kind not in ("waiting", "running")

        await rig.until(over)
        seen = await rig.sighting(order.ref)
        assert seen.kind != "ended" or seen.succeeded is succeeds

    async def test_what_is_stopped_ends(self, rig: EngineRig) -> None:
        order = rig.order()
        await rig.engine.submit(order)
        await rig.arrived()
        await rig.engine.stop(order.ref)
        await rig.finish(True)

        async def over() -> bool:
            return (await rig.sighting(order.ref)).kind not in ("waiting", "running")

        await rig.until(over)

    async def test_another_client_can_ask_and_forget(self, rig: EngineRig) -> None:
        """As a replica does that adopts a run: nothing is remembered in the object that sent it alone."""
        order = rig.order()
        await rig.engine.submit(order)
        await rig.arrived()
        await rig.finish(True)
        await rig.engine.forget(order.ref)
        assert (await rig.sighting(order.ref)).kind != "running"
