"""Problems and their priorities, at the boundaries."""

from __future__ import annotations

import pytest

from stop_sync.matching import match
from stop_sync.model import Operator
from stop_sync.problems import distance_priority, find_problems, unmatched_priority
from tests.stop_sync.rows import node, stop

NUMBER = "8570001"
NAME = "Moostal, Post"
OPERATORS = [Operator("ch:1:sboid:1", "RBM", "Regiobus Moosland AG")]


def problems(stops, nodes):
    """Kind, priority, stop and node of each."""
    found = find_problems(stops, OPERATORS, nodes, match(stops, [], nodes))
    assert [problem.id for problem in found] == list(range(1, len(found) + 1))
    return [(problem.kind, problem.priority, problem.sloid, problem.node_id) for problem in found]


# --- distance -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metres", "priority"),
    [(15.0, None), (15.01, 3), (25.0, 3), (25.01, 2), (80.0, 2), (80.01, 1), (5000, 1)],
)
def test_the_further_apart_the_more_urgent(metres, priority):
    assert distance_priority(metres, "RBM") == priority


@pytest.mark.parametrize(("metres", "priority"), [(15.01, None), (25.0, None), (25.01, 3), (80.01, 3)])
def test_long_platforms_are_never_urgent(metres, priority):
    assert distance_priority(metres, "SBB") == priority


def test_a_matched_pair_too_far_apart():
    far = node(30, uic_ref=NUMBER)
    assert problems([stop()], [far]) == [("distance", 2, "a", far.id)]


# --- attributes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "priority"),
    [
        ({"uic_ref": "5870001", "name": NAME}, 1),
        ({"uic_ref": NUMBER, "name": "Moostal, Kirche"}, 1),
        ({"uic_ref": NUMBER, "name": "Moostal, Kirche", "local_ref": "B"}, 1),
        ({"uic_ref": NUMBER, "local_ref": "B", "operator": "Dorfbus"}, 2),
        ({"uic_ref": NUMBER, "operator": "Dorfbus"}, 3),
        ({"uic_ref": NUMBER, "name": "Post", "uic_name": NAME}, None),
        ({"uic_ref": NUMBER, "local_ref": "a", "operator": "regiobus moosland ag"}, None),
        ({"uic_ref": NUMBER, "operator": "rbm"}, None),
        ({"uic_ref": NUMBER}, None),
    ],
)
def test_the_worst_difference_decides(tags, priority):
    differing = node(**tags)
    expected = [] if priority is None else [("attributes", priority, "a", differing.id)]
    assert problems([stop(designation="A")], [differing]) == expected


def test_every_difference_is_told():
    stops, nodes = [stop(designation="A")], [node(uic_ref=NUMBER, local_ref="B", operator="Dorfbus")]
    (problem,) = find_problems(stops, OPERATORS, nodes, match(stops, [], nodes))
    assert problem.detail == "platform: 'A' and 'B', operator: 'RBM' and 'Dorfbus'"


# --- unmatched ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namesakes", "own", "nearest_m", "priority"),
    [
        (0, 1, 10, 1),
        (1, 1, 80.01, 1),
        (1, 1, 80.0, 2),
        (1, 1, 50.01, 2),
        (1, 1, 50.0, 3),
        (2, 1, 50.0, 2),
        (1, 2, 10, 2),
        (None, 0, 10, 3),
        (None, 0, 50.01, 2),
        (None, 0, 80.01, 1),
        (None, 0, float("inf"), 1),
    ],
)
def test_the_lonelier_the_more_urgent(namesakes, own, nearest_m, priority):
    assert unmatched_priority(namesakes, own, nearest_m) == priority


def test_nobody_on_the_other_side_at_all():
    assert problems([stop()], []) == [("unmatched", 1, "a", None)]
    alone = node()
    assert problems([], [alone]) == [("unmatched", 1, None, alone.id)]


def test_a_stop_whose_number_nobody_has_though_somebody_is_near():
    mute = node(5, local_ref="B")
    assert problems([stop(designation="A")], [mute]) == [
        ("unmatched", 1, "a", None),
        ("unmatched", 3, None, mute.id),
    ]


def test_a_platform_more_than_the_map_has():
    stops = [stop(sloid, 20 * place, designation=sloid) for place, sloid in enumerate("abc")]
    nodes = [node(20 * place, uic_ref=NUMBER, local_ref=ref) for place, ref in enumerate("ab")]
    assert problems(stops, nodes) == [("unmatched", 2, "c", None)]


def test_as_many_on_both_sides_but_other_letters():
    stops = [stop("a", designation="A"), stop("b", 20, designation="B")]
    nodes = [node(uic_ref=NUMBER, local_ref="A"), node(20, uic_ref=NUMBER, local_ref="D")]
    assert problems(stops, nodes) == [("unmatched", 3, "b", None), ("unmatched", 3, None, nodes[1].id)]


# --- duplicates ---------------------------------------------------------------------------------------------


def test_the_same_platform_again_in_the_register():
    only = node(uic_ref=NUMBER)
    stops = [stop("a", designation="A"), stop("again", designation="a"), stop("b", designation="B")]
    assert problems(stops, [only]) == [("duplicate", 2, "again", None)]


def test_without_a_designation_nothing_is_the_same():
    assert problems([stop("a"), stop("b")], [node(uic_ref=NUMBER)]) == []


def test_the_same_platform_again_on_the_map():
    first, again = node(uic_ref=NUMBER, local_ref="A"), node(14, uic_ref=NUMBER, local_ref="a")
    assert problems([stop(designation="A")], [first, again]) == [("duplicate", 3, None, again.id)]


def test_a_platform_and_its_stop_position_are_no_duplicates():
    nodes = [
        node(uic_ref=NUMBER, local_ref="A"),
        node(5, uic_ref=NUMBER, local_ref="A", kind="stop_position"),
    ]
    assert problems([stop(designation="A")], nodes) == []


def test_nodes_without_a_letter_are_no_duplicates():
    assert problems([stop()], [node(uic_ref=NUMBER), node(14, uic_ref=NUMBER)]) == []
