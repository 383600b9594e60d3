"""Who asks first for a moment, and when the others do."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from fencepost.replica.peers import DISTRUSTED_FOR, Peers
from fencepost.replica.rank import (
    BACKUP,
    MOST_AHEAD,
    Ahead,
    NextClaim,
    moments_to_know,
    next_claim,
    ranked_before,
)
from fencepost.store.base import Upcoming
from fencepost.testing.conformance import HandClock

REPLICAS = ("a", "b", "c")
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


def moments(*seconds: float) -> tuple[Upcoming, ...]:
    return tuple(Upcoming(NOW + timedelta(seconds=each)) for each in seconds)


def others(me: str) -> set[str]:
    return {*REPLICAS} - {me}


def order_of(moment: datetime) -> list[str]:
    return sorted(REPLICAS, key=lambda each: len(ranked_before(each, others(each), moment)))


def turn_of(me: str, *seconds: float, is_all: bool = True, known: Ahead | None = None) -> NextClaim:
    return next_claim(me, others(me), seconds[0], Ahead(moments(*seconds), is_all), known)


def test_all_compute_the_same_order() -> None:
    for second in range(50):
        moment = NOW + timedelta(seconds=second)
        ranks = sorted(len(ranked_before(each, others(each), moment)) for each in REPLICAS)
        assert ranks == [0, 1, 2]


@pytest.mark.parametrize("period", [0.01, 0.05, 0.15, 1, 3, 60, 3600])
def test_each_is_first_for_its_share(period: float) -> None:
    firsts = Counter(order_of(NOW + n * timedelta(seconds=period))[0] for n in range(3000))
    assert all(850 <= firsts[each] <= 1150 for each in REPLICAS)


def test_where_one_leaves_the_others_keep_their_order() -> None:
    for second in range(50):
        _, *rest = order_of(NOW + timedelta(seconds=second))
        moment = NOW + timedelta(seconds=second)
        assert ranked_before(rest[0], {rest[1]}, moment) == frozenset()
        assert ranked_before(rest[1], {rest[0]}, moment) == {rest[0]}


def test_the_others_follow_one_by_one() -> None:
    first, second, third = order_of(NOW + timedelta(seconds=5))
    assert turn_of(first, 5.0) == NextClaim(5.0, NOW + timedelta(seconds=5))
    assert turn_of(second, 5.0).seconds == pytest.approx(5.0 + BACKUP)
    assert turn_of(second, 5.0).before == {first}
    assert turn_of(third, 5.0).seconds == pytest.approx(5.0 + 2 * BACKUP)
    assert turn_of(third, 5.0).before == {first, second}


def test_a_replica_asks_for_the_first_moment_that_is_its_own() -> None:
    seconds = [5 + n / 100 for n in range(18)]
    for me in REPLICAS:
        mine = next(each for each in seconds if order_of(NOW + timedelta(seconds=each))[0] == me)
        assert turn_of(me, *seconds).seconds == pytest.approx(mine)


def test_who_is_alone_asks_at_the_moment() -> None:
    assert next_claim("a", (), 5.0, Ahead(moments(5.0, 6.0), True), None).seconds == 5.0


def test_as_many_ask_at_once_as_there_are_fires() -> None:
    _, second, third = order_of(NOW + timedelta(seconds=5))
    assert turn_of(second, 5.0, 5.0).seconds == 5.0
    assert turn_of(third, 5.0, 5.0).seconds > 5.0


def test_the_leader_asks_at_once_for_what_is_its_own() -> None:
    *_, third = order_of(NOW + timedelta(seconds=5))
    ahead = Ahead((Upcoming(NOW + timedelta(seconds=5), leader_only=True),), is_all=True)
    assert next_claim(third, others(third), 5.0, ahead, None).seconds == 5.0


def test_where_the_list_ends_a_replica_asks_for_more() -> None:
    *_, third = order_of(NOW + timedelta(seconds=5))
    assert turn_of(third, 5.0, is_all=False).seconds == 5.0


@pytest.mark.parametrize(
    ("known", "is_new"),
    [
        (None, False),
        (Ahead(moments(0.1, 0.3), is_all=True), False),
        (Ahead(moments(0.1, 0.5), is_all=False), True),
        (Ahead(moments(0.1, 0.2), is_all=False), False),  # it may have been listed next
        (Ahead(moments(0.1, 0.2), is_all=True), True),
    ],
)
def test_what_is_new_and_near_may_be_known_to_one_alone(known: Ahead | None, is_new: bool) -> None:
    *_, third = order_of(NOW + timedelta(seconds=0.3))
    assert (turn_of(third, 0.3, known=known).seconds == 0.3) == is_new


def test_what_is_new_and_far_will_be_known_to_all() -> None:
    *_, third = order_of(NOW + timedelta(seconds=5))
    assert turn_of(third, 5.0, known=Ahead(moments(0.1), is_all=True)).seconds > 5.0


def test_how_many_moments_are_asked_for() -> None:
    assert [moments_to_know(peers) for peers in (0, 1, 2, 59)] == [0, 12, 18, MOST_AHEAD]


async def test_who_did_not_ask_is_left_out_for_a_while() -> None:
    clock = HandClock()
    peers = Peers(clock)
    assert peers.learn(["b", "c"])
    assert not peers.learn(["c", "b"])
    peers.distrust({"b"})
    assert peers.trusted == {"c"}
    peers.learn(["b", "c", "d"])
    assert peers.trusted == {"c", "d"}
    await clock.advance(DISTRUSTED_FOR)
    assert peers.trusted == {"b", "c", "d"}
