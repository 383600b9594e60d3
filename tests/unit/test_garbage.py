"""Full collections look at what is new, and at everything only now and then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from fencepost.scheduler.garbage import EVERYTHING_AFTER, short_collections
from fencepost.testing.conformance import NOON, HandClock


class Kept:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def test_what_a_full_collection_has_found_alive_is_left_out_of_the_next() -> None:
    with short_collections(HandClock(NOON)):
        kept = [Kept() for _ in range(1_000)]
        gc.collect()
        assert not any(isinstance(each, Kept) for each in gc.get_objects())
        ended = weakref.ref(Kept())
        gc.collect()
        assert ended() is None, "what is new is looked at"
        assert len(kept) == 1_000


async def test_what_refers_to_itself_is_freed_when_everything_is_looked_at_again() -> None:
    clock = HandClock(NOON)
    with short_collections(clock):
        kept = Kept()
        gc.collect()
        seen = weakref.ref(kept)
        del kept
        gc.collect()
        assert seen() is not None
        await clock.advance(EVERYTHING_AFTER)
        gc.collect()
        assert seen() is None


def test_afterwards_collections_are_as_they_were() -> None:
    with short_collections(HandClock(NOON)):
        pass
    kept = Kept()
    gc.collect()
    assert any(each is kept for each in gc.get_objects())
