"""Each stage on cases made by hand."""

from __future__ import annotations

import random

import pytest

from stop_sync.matching import match
from tests.stop_sync.rows import called_at, matched, node, stop

NUMBER = "8570001"
OTHER = "8570002"
NAME = "Moostal, Post"


# --- 1 reference --------------------------------------------------------------------------------------------


def test_one_stop_is_all_nodes_of_its_reference():
    near, far = node(5, uic_ref=NUMBER), node(300, uic_ref=NUMBER)
    assert matched([stop()], [near, far]) == {("a", near.id): "reference", ("a", far.id): "reference"}


def test_all_stops_of_a_reference_are_its_only_node():
    only = node(uic_ref=NUMBER)
    assert matched([stop("a"), stop("b", 20)], [only]) == {
        ("a", only.id): "reference",
        ("b", only.id): "reference",
    }


def test_of_several_on_both_sides_the_letters_decide_whatever_their_case():
    at_b, at_a = node(0, uic_ref=NUMBER, local_ref="B"), node(20, uic_ref=NUMBER, local_ref="a")
    stops = [stop("a", 0, designation="A"), stop("b", 20, designation="b")]
    assert matched(stops, [at_b, at_a]) == {("a", at_a.id): "reference", ("b", at_b.id): "reference"}


def test_a_reference_is_stronger_than_a_name_and_nearness():
    right, wrong = node(90, uic_ref=NUMBER), node(0, name=NAME)
    assert matched([stop()], [right, wrong]) == {("a", right.id): "reference"}


def test_nodes_without_a_reference_have_none_in_common_with_anybody():
    assert matched([stop()], [node(200), node(-200)]) == {}


# --- 2 name -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tags", [{"name": NAME}, {"name": "Post", "uic_name": "moostal,  post"}])
def test_the_official_name_in_either_tag(tags):
    named = node(70, **tags)
    assert matched([stop()], [named]) == {("a", named.id): "name"}


def test_of_several_with_the_name_the_letters_decide():
    at_b, at_a = node(0, name=NAME, local_ref="B"), node(20, name=NAME, local_ref="A")
    stops = [stop("a", 0, designation="A"), stop("b", 20, designation="B")]
    assert matched(stops, [at_b, at_a]) == {("a", at_a.id): "name", ("b", at_b.id): "name"}


def test_a_reference_that_nobody_has_does_not_hinder_a_name():
    named = node(name=NAME, uic_ref="5870001")
    assert matched([stop()], [named]) == {("a", named.id): "name"}


def test_a_node_that_refers_to_another_stop_is_that_one():
    """Its own stop has it by reference, so this stop goes without."""
    referring = node(0, name=NAME, uic_ref=OTHER)
    stops = [stop("a"), stop("b", 40, number=OTHER, name="Moostal, Dorf")]
    assert matched(stops, [referring]) == {("b", referring.id): "reference"}


def test_a_node_with_the_names_of_two_stops_says_nothing():
    both = node(500, name=NAME, uic_name="Moostal, Dorf")
    stops = [stop("a"), stop("b", 1000, number=OTHER, name="Moostal, Dorf")]
    assert matched(stops, [both]) == {}


# --- 3 routes -----------------------------------------------------------------------------------------------

OUT, BACK = ("31", "31 > dorf"), ("31", "31 > bahnhof")


def test_the_direction_tells_two_sides_of_a_road_apart():
    """Each node is nearer to the wrong platform."""
    out, back = node(0, 9, routes=OUT), node(0, 5, routes=BACK)
    stops = [stop("a", 0, 0), stop("b", 0, 14)]
    timetable = [called_at("a", *OUT), called_at("b", *BACK)]
    assert matched(stops, [out, back], timetable) == {("a", out.id): "routes", ("b", back.id): "routes"}


def test_two_that_share_as_much_are_no_best():
    stops = [stop("a", 0, 0), stop("b", 0, 12)]
    timetable = [called_at("a", "31"), called_at("b", "31")]
    assert matched(stops, [node(0, 6, routes=["31"]), node(0, 7, routes=["31"])], timetable) == {}


def test_a_best_that_has_a_better_one_is_none():
    """For b the node is best; but for the node it is a."""
    only = node(0, 6, routes=OUT)
    stops = [stop("a", 0, 0), stop("b", 0, 12)]
    timetable = [called_at("a", *OUT), called_at("b", "31")]
    assert matched(stops, [only], timetable) == {("a", only.id): "routes"}


@pytest.mark.parametrize(("metres", "found"), [(49.9, {"routes"}), (50.1, set())])
def test_routes_count_within_fifty_metres(metres, found):
    calling, rival = node(metres, routes=OUT), node(-metres / 2)
    assert set(matched([stop()], [calling, rival], [called_at("a", *OUT)]).values()) - {"single"} == found


# --- 4 together ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tags", "stage"), [({"uic_ref": NUMBER}, "reference"), ({"name": NAME}, "name")])
def test_as_many_pairs_as_possible_at_the_least_distance(tags, stage):
    """Nearest first would join the second stop with the first node and leave the first stop alone."""
    stops = [stop("a", 0), stop("b", 30), stop("c", 60)]
    nodes = [node(east, **tags) for east in (18, 48, 78)]
    expected = zip("abc", nodes, strict=True)
    assert matched(stops, nodes) == {(sloid, each.id): f"together by {stage}" for sloid, each in expected}


def test_of_all_ways_to_match_as_many_the_shortest_is_taken():
    stops = [stop("a", 0), stop("b", 10)]
    left, right = node(-2, uic_ref=NUMBER), node(13, uic_ref=NUMBER)
    assert set(matched(stops, [right, left])) == {("a", left.id), ("b", right.id)}


def test_what_is_too_far_or_has_another_letter_stays_alone():
    stops = [stop("a", 0, designation="A"), stop("b", 30), stop("c", 500)]
    other_letter, far = node(0, uic_ref=NUMBER, local_ref="X"), node(200, uic_ref=NUMBER)
    assert matched(stops, [other_letter, far]) == {("b", other_letter.id): "together by reference"}


def test_one_more_on_either_side_stays_alone():
    stops = [stop("a", 0), stop("b", 20), stop("c", 40)]
    nodes = [node(2, uic_ref=NUMBER), node(41, uic_ref=NUMBER)]
    assert set(matched(stops, nodes)) == {("a", nodes[0].id), ("c", nodes[1].id)}


# --- 5 platform ---------------------------------------------------------------------------------------------


def test_the_letter_alone_counts_when_it_is_near():
    at_b, at_a = node(3, local_ref="B"), node(18, local_ref="A")
    stops = [stop("a", 0, designation="A"), stop("b", 20, designation="B")]
    assert matched(stops, [at_b, at_a]) == {("a", at_a.id): "platform", ("b", at_b.id): "platform"}


def test_of_two_with_the_letter_the_nearest_is_it():
    near, far = node(3, local_ref="A"), node(9, local_ref="A")
    assert matched([stop(designation="A")], [far, near]) == {("a", near.id): "platform"}


# --- 6 nearness alone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("metres", "found"), [(49.9, ["single"]), (50.1, [])])
def test_the_only_one_within_fifty_metres(metres, found):
    assert list(matched([stop()], [node(metres)]).values()) == found


def test_two_stops_for_one_node_are_no_single():
    assert matched([stop("a", 0), stop("b", 20)], [node(10)]) == {}


def test_a_contradicting_letter_is_no_candidate():
    right = node(30)
    assert matched([stop(designation="A")], [node(1, local_ref="B"), right]) == {("a", right.id): "single"}
    assert matched([stop(designation="A")], [node(1, local_ref="B")]) == {}


def test_a_node_of_another_stop_is_no_candidate():
    """The other stop has two platforms and two nodes, of which one is left over and near us."""
    left_over = node(22, uic_ref=OTHER, local_ref="Z")
    stops = [
        stop("b", 60, number=OTHER, designation="B", name="Dorf"),
        stop("c", 80, number=OTHER, designation="C", name="Dorf"),
        stop("a", 20),
    ]
    nodes = [node(61, uic_ref=OTHER, local_ref="B"), left_over]
    assert set(matched(stops, nodes)) == {("b", nodes[0].id)}


@pytest.mark.parametrize(
    ("nearest", "second", "clear"),
    [(4.0, 16.1, True), (4.0, 15.9, False), (2.0, 10.1, True), (2.0, 9.9, False), (12.4, 49.9, True)],
)
def test_clearly_nearest_is_four_times_as_near_and_ten_metres(nearest, second, clear):
    near, other = node(nearest), node(0, second)
    assert matched([stop()], [other, near]) == ({("a", near.id): "clearly nearest"} if clear else {})


def test_clearly_nearest_must_hold_for_the_node_too():
    """The stop has no other node near, but the node has another stop beside it."""
    assert matched([stop("a", 0), stop("b", 5)], [node(2)]) == {}


def test_single_again_after_a_rival_is_taken():
    first, second = node(2), node(55)
    assert matched([stop("a", 0), stop("b", 40)], [first, second]) == {
        ("a", first.id): "clearly nearest",
        ("b", second.id): "single again",
    }


# --- what counts as one -------------------------------------------------------------------------------------


def test_a_platform_that_the_register_has_twice_shares_its_match():
    stops = [stop("a", designation="1"), stop("again", 4, designation="1"), stop("b", 25, designation="2")]
    nodes = [node(uic_ref=NUMBER, local_ref="1"), node(25, uic_ref=NUMBER, local_ref="2")]
    one, two = nodes
    assert set(matched(stops, nodes)) == {("a", one.id), ("again", one.id), ("b", two.id)}


@pytest.mark.parametrize(("metres", "together"), [(11.9, True), (12.1, False)])
def test_a_platform_and_a_stop_position_side_by_side_are_one(metres, together):
    """As one they are single; as two, neither is."""
    platform, position = node(10), node(10, metres, kind="stop_position")
    expected = {("a", platform.id): "single", ("a", position.id): "single"} if together else {}
    assert matched([stop()], [platform, position]) == expected


def test_two_platforms_are_never_one():
    assert matched([stop()], [node(10), node(10, 5)]) == {}


# --- in general ---------------------------------------------------------------------------------------------


def test_nothing_on_one_side_or_both():
    assert matched([], []) == matched([stop()], []) == matched([], [node()]) == {}


def test_the_order_of_the_rows_changes_nothing():
    """Crowded together, some of them twice, some with a reference or a letter and some without; and two between whom
    distances do not decide."""
    places = range(16)
    stops = [stop(f"s{i}", 9 * i, number=f"857000{i % 4}", designation="AB"[i % 2]) for i in places]
    stops += [stop(f"t{i}", 9 * i, 20, number=f"858000{i % 8}", name=f"Dorf {i}") for i in places]
    stops += [stop("u1", 1000, number="8590000"), stop("u2", 1010, number="8590000")]
    nodes = [node(10 * i, 10, local_ref=("A", "B", "")[i % 3], uic_ref=("", NUMBER)[i % 2]) for i in places]
    nodes += [node(1005, uic_ref="8590000"), node(1005, uic_ref="8590000")]
    once = match(stops, [], nodes)
    assert {found.stage for found in once} == {"reference", "platform", "together by reference"}
    shuffle = random.Random(1).shuffle
    for _ in range(5):
        shuffle(stops)
        shuffle(nodes)
        assert sorted(map(repr, match(stops, [], nodes))) == sorted(map(repr, once))


def test_distances_are_in_metres():
    (found,) = match([stop()], [], [node(30, 40, uic_ref=NUMBER)])
    assert found.distance_m == pytest.approx(50, abs=0.05)
