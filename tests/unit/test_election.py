"""What counts as having watched, and how long a term may be trusted."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import pytest

from fencepost.model import Lease
from fencepost.replica.election import TRUSTED, Leadership, Observation
from fencepost.store.base import Evidence

HEARTBEAT, TTL = 10.0, 30.0
NONE = Evidence()


# Observation


def test_time_under_the_same_mark_adds_up():
    observation = Observation(HEARTBEAT)
    assert [observation.observe("a", 1, steady) for steady in (100, 104, 109, 118)] == [0, 4, 9, 18]


def test_a_gap_counts_for_one_heartbeat_at_the_most():
    observation = Observation(HEARTBEAT)
    assert observation.observe("a", 1, 100) == 0
    assert observation.observe("a", 1, 100_000) == HEARTBEAT
    assert observation.observe("a", 1, 100_001) == HEARTBEAT + 1


def test_a_clock_that_goes_backwards_counts_for_nothing():
    observation = Observation(HEARTBEAT)
    observation.observe("a", 1, 100)
    assert observation.observe("a", 1, 50) == 0
    assert observation.observe("a", 1, 55) == 5


def test_a_new_mark_starts_the_observation_over():
    observation = Observation(HEARTBEAT)
    observation.observe("a", 1, 100)
    observation.observe("a", 1, 108)
    assert observation.observe("a", 2, 110) == 0
    assert observation.observe("a", 1, 112) == 0  # the old mark again is a change as well
    assert observation.observe("a", 1, 115) == 3


def test_names_are_watched_apart_and_forgotten_apart():
    observation = Observation(HEARTBEAT)
    for name in ("a", "b"):
        observation.observe(name, 1, 100)
    assert observation.observe("a", 1, 105) == 5
    assert observation.observe("b", 2, 105) == 0
    observation.forget_others({"b"})
    assert observation.observe("a", 1, 110) == 0
    assert observation.observe("b", 2, 110) == 5


def test_time_in_which_a_check_failed_does_not_count():
    observation = Observation(HEARTBEAT)
    observation.observe("a", 1, 100)
    observation.observe("a", 1, 109)
    for failed in range(3):
        observation.interrupt()
        assert observation.observe("a", 1, 109 + 10 * (failed + 1)) == 9
    assert observation.observe("a", 1, 141) == 11


def test_an_interruption_longer_than_a_heartbeat_starts_the_observation_over():
    observation = Observation(HEARTBEAT)
    observation.observe("a", 1, 100)
    observation.observe("a", 1, 109)
    observation.interrupt()
    assert observation.observe("a", 1, 119.1) == 0
    assert observation.observe("a", 1, 121.1) == 2


def test_a_new_mark_after_an_interruption_starts_the_observation_over():
    observation = Observation(HEARTBEAT)
    observation.observe("a", 1, 100)
    observation.observe("a", 1, 109)
    observation.interrupt()
    assert observation.observe("a", 2, 110) == 0


# Leadership


def lease(holder, term=1, renewals=0):
    return Lease(holder, term, renewals, TTL, HEARTBEAT, 0.0)


def test_a_term_is_trusted_from_the_moment_of_sending_not_of_the_answer():
    leadership = Leadership("me", TTL, HEARTBEAT)
    leadership.learn(lease("me", term=4), sent=100.0, steady=115.0)
    end = 100.0 + TRUSTED * TTL
    assert leadership.term(115.0) == 4
    assert leadership.term(end - 0.001) == 4
    assert leadership.term(end) is None
    assert TRUSTED < 1


def test_an_answer_that_took_longer_than_the_trust_gives_none():
    leadership = Leadership("me", TTL, HEARTBEAT)
    leadership.learn(lease("me"), sent=100.0, steady=130.0)
    assert leadership.term(130.0) is None


def test_each_renewal_moves_the_trust():
    leadership = Leadership("me", TTL, HEARTBEAT)
    leadership.learn(lease("me"), sent=100.0, steady=100.1)
    leadership.learn(lease("me", renewals=1), sent=110.0, steady=110.1)
    assert leadership.term(130.9) == 1
    assert leadership.term(131.0) is None


def test_who_does_not_lead_has_no_term_and_a_lost_term_ends_at_once():
    leadership = Leadership("me", TTL, HEARTBEAT)
    assert leadership.term(0.0) is None
    leadership.learn(lease("me"), sent=100.0, steady=100.1)
    leadership.learn(lease("other", term=2), sent=101.0, steady=101.1)
    assert leadership.term(101.1) is None
    assert leadership.lease.holder == "other"


def test_a_follower_campaigns_with_what_it_has_watched():
    leadership = Leadership("me", TTL, HEARTBEAT)
    assert leadership.campaign(NONE).watched is None
    for steady in (100.0, 108.0, 116.0):
        leadership.learn(lease("other", 3, 7), sent=steady, steady=steady)
    watched = leadership.campaign(NONE).watched
    assert (watched.term, watched.renewals, watched.seconds, watched.gone) == (3, 7, 16.0, False)
    leadership.learn(lease("other", 3, 8), sent=120.0, steady=120.0)
    assert leadership.campaign(NONE).watched.seconds == 0


def test_a_follower_that_was_asleep_has_not_watched():
    leadership = Leadership("me", TTL, HEARTBEAT)
    leadership.learn(lease("other"), sent=0.0, steady=0.0)
    leadership.learn(lease("other"), sent=3600.0, steady=3600.0)
    assert leadership.campaign(NONE).watched.seconds == HEARTBEAT


@pytest.mark.parametrize(("after", "seconds"), [(8.0, 8.0), (12.0, 0.0)])
def test_nobody_is_accused_right_after_a_store_error(after, seconds):
    leadership = Leadership("me", TTL, HEARTBEAT)
    for steady in (100.0, 108.0):
        leadership.learn(lease("other"), sent=steady, steady=steady)
    leadership.interrupt_observation()
    assert leadership.campaign(NONE).watched is None
    leadership.learn(lease("other"), sent=108.0 + after, steady=108.0 + after)
    assert leadership.campaign(NONE).watched.seconds == seconds


@pytest.mark.parametrize(
    ("evidence", "counts"),
    [
        (Evidence(gone=frozenset({"other"})), True),
        (Evidence(dead=frozenset({"other"})), True),
        (Evidence(gone=frozenset({"third"}), dead=frozenset({"me"})), False),
    ],
)
def test_evidence_counts_only_against_the_current_holder(evidence, counts):
    leadership = Leadership("me", TTL, HEARTBEAT)
    leadership.learn(lease("other", 3, 7), sent=0.0, steady=0.0)
    watched = leadership.campaign(evidence).watched
    assert watched.gone is counts
    assert (watched.term, watched.renewals) == (3, 7)
