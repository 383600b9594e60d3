"""The Dask engine against a real scheduler in a process of its own. No worker is needed to see who holds an order:
it waits for a resource that no worker has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencepost import ConfigurationError
from fencepost.engines.dask import DaskEngine
from fencepost.runs.engines import Ref
from tests.engines.orders import an_order
from tests.engines.places import DaskPlace, Place, dask

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WAITS = {"resources": {"GPU": 1}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with dask(tmp_path_factory.mktemp("dask"), {}, workers=0) as place:
        yield place


@pytest.fixture
async def engine(place: Place) -> AsyncIterator[DaskEngine]:
    engine = await connected(place)
    yield engine
    await engine.close()


async def connected(place: Place) -> DaskEngine:
    engine = DaskEngine(place.env["FENCEPOST_DASK_SCHEDULER"])
    await becomes(engine, an_order("dask").ref, "gone")
    return engine


async def becomes(engine: DaskEngine, ref: Ref, kind: str) -> None:
    """A scheduler that is not there yet is asked again."""
    async with asyncio.timeout(60):
        while True:
            try:
                if (await engine.poll([ref]))[ref].kind == kind:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.05)


async def test_the_same_order_twice_is_one_task(engine: DaskEngine) -> None:
    order = an_order("dask", options=WAITS)
    await engine.submit(order)
    await engine.submit(order)
    assert (await engine.poll([order.ref]))[order.ref].kind == "waiting"
    await engine.stop(order.ref)
    await becomes(engine, order.ref, "gone")


async def test_an_order_outlives_the_replica_that_sent_it(engine: DaskEngine, place: Place) -> None:
    order = an_order("dask", options=WAITS)
    sender = await connected(place)
    await sender.submit(order)
    await sender.close()
    await asyncio.sleep(0.5)  # a scheduler that lets go of it does so at once
    assert (await engine.poll([order.ref]))[order.ref].kind == "waiting"
    await engine.forget(order.ref)
    await becomes(engine, order.ref, "gone")


async def test_unknown_orders_are_ignored(engine: DaskEngine) -> None:
    unknown = an_order("dask").ref
    await engine.stop(unknown)
    await engine.forget(unknown)


async def test_after_a_restart_of_the_scheduler_an_order_is_gone_and_can_be_sent_again(
    engine: DaskEngine, place: Place
) -> None:
    order = an_order("dask", options=WAITS)
    await engine.submit(order)
    assert isinstance(place, DaskPlace)
    place.restart_servers()
    await becomes(engine, order.ref, "gone")
    await engine.submit(order)
    assert (await engine.poll([order.ref]))[order.ref].kind == "waiting"
    await engine.forget(order.ref)


async def test_while_the_scheduler_is_away_nothing_is_gone(tmp_path: Path) -> None:
    engine = DaskEngine("tcp://127.0.0.1:9")
    with pytest.raises(OSError, match="Timed out"):
        await engine.poll([an_order("dask").ref])


def test_options_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'resources'"):
        DaskEngine.check_options({"resource": {}})
    with pytest.raises(ConfigurationError, match="wrong type"):
        DaskEngine.check_options({"priority": True})
    monkeypatch.delenv("FENCEPOST_DASK_SCHEDULER", raising=False)
    with pytest.raises(ConfigurationError, match="set FENCEPOST_DASK_SCHEDULER"):
        DaskEngine()
