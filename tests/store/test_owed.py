"""A run ends while the row of a job cannot be read: what others wait for is done at once, or when it can be read."""

from __future__ import annotations

import pytest

from fencepost.model import FireRecord, Reason, State
from fencepost.model.limits import limit
from fencepost.model.triggers.following import After
from fencepost.store.base import FireQuery, RetryLater, Settle, Store
from fencepost.testing.conformance import Harness
from tests.store.unreadable import BAD, Place

STORES = pytest.mark.parametrize("store", ["sqlite", "file", "redis", "postgres"])
ONE = (limit("warehouse", 1),)


def harness_of(place: Place, store: Store) -> Harness:
    return Harness.with_clock(store, place.clock)


async def parent_and_child(harness: Harness, parent: str, child: str) -> tuple[int, FireRecord]:
    """The leader's term, and the run of the parent."""
    term = await harness.elect("a", "play")
    await harness.define(parent, target="play")
    await harness.define(child, After((parent,)), target="play")
    await harness.trigger(parent, "first")
    return term, await harness.claim("a")


@STORES
@pytest.mark.parametrize(("parent", "child"), [(BAD, "child"), ("parent", BAD)])
async def test_a_child_is_let_go_when_the_row_can_be_read_again(
    place: Place, parent: str, child: str
) -> None:
    """The parent's row, or the child's; also after a restart in between."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        term, run = await parent_and_child(harness, parent, child)
        place.damage("definition")
        assert await harness.settle(run)
        assert await store.sweep("a", term, []) is not None
        assert await harness.claims("a") == []
    place.repair()
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.join("b", "play")
        assert (await harness.fire(run.key)).state is State.SUCCEEDED
        for _ in range(2):
            assert await store.sweep("a", term, []) is not None
        followed = await harness.claim("b")
        assert (followed.key, followed.due_at) == (f"{child}!first", run.due_at)
        assert await harness.update(Settle(followed.key, followed.token, State.SUCCEEDED), "b")
        assert await store.sweep("a", term, []) is not None
        assert await harness.claims("b") == []


@STORES
async def test_a_job_cannot_begin_to_follow_one_that_cannot_be_read(place: Place) -> None:
    """It could not be told of it; and whether there would be a circle is not known."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.elect("a", "play")
        await harness.define(BAD, target="play")
        await harness.trigger(BAD, "first")
        run = await harness.claim("a")
        place.damage("definition")
        refused = await harness.define("child", After((BAD,)), target="play")
        assert (refused.outcome, refused.detail) == ("unreadable", BAD)
        place.repair()
        assert (await harness.define("child", After((BAD,)), target="play")).outcome == "created"
        assert await harness.settle(run)
        assert (await harness.claim("a")).key == "child!first"


@STORES
async def test_what_followed_a_job_that_was_removed_unread_follows_it_when_it_is_declared_again(
    place: Place,
) -> None:
    async with place.opened() as store:
        harness = harness_of(place, store)
        term, run = await parent_and_child(harness, BAD, "child")
        place.damage("definition")
        assert await harness.settle(run)
        await harness.remove(BAD)
        assert await store.sweep("a", term, []) is not None
        assert (await harness.claim("a")).key == "child!first"
        await harness.define(BAD, target="play")
        await harness.trigger(BAD, "second")
        assert await harness.settle(await harness.claim("a"))
        assert [fire.key for fire in await store.find_fires(FireQuery(key="child!second"))]


@STORES
@pytest.mark.parametrize("ends", [True, False])
async def test_a_place_is_free_at_once(place: Place, ends: bool) -> None:
    """Of a run that ends, and of one that waits to be run again."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.elect("a", "play")
        for id in (BAD, "other"):
            await harness.define(id, target="play", limits=ONE)
        await harness.trigger(BAD, "first")
        run = await harness.claim("a")
        await harness.trigger("other", "first")
        assert await harness.claims("a") == []
        place.damage("definition")
        end = Settle(run.key, run.token, State.SUCCEEDED) if ends else RetryLater(run.key, run.token, 5.0)
        assert await harness.update(end)
        assert (await harness.claim("a")).key == "other!first"
        place.repair()


@STORES
async def test_a_retry_of_a_removed_job_is_cancelled_when_the_row_can_be_read_again(place: Place) -> None:
    """While it could not be read, nobody knew that the job was removed."""
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.elect("a", "play")
        await harness.define(BAD, target="play")
        await harness.trigger(BAD, "first")
        run = await harness.claim("a")
        await harness.remove(BAD)
        place.damage("definition")
        assert await harness.update(RetryLater(run.key, run.token, 0.0))
        assert (await harness.fire(run.key)).state is State.WAITING
    place.repair()
    async with place.opened() as store:
        harness = harness_of(place, store)
        await harness.join("b", "play")
        assert await harness.claims("b") == []
        ended = await harness.fire(run.key)
        assert (ended.state, ended.reason) == (State.CANCELLED, Reason.REMOVED)
