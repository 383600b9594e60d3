"""What can be right or wrong at a stop. Each function makes one stop of that kind and says what is true of it.

The truth is known here because it is made here; the matcher has no part in it.
"""

from __future__ import annotations

from collections.abc import Callable

from stop_sync.data.area import BEYOND, Area
from stop_sync.model import Stop

Situation = Callable[[Area], None]


# --- found by what they say ---------------------------------------------------------------------------------


def one_to_one(area: Area) -> None:
    stop = area.stop(designation=area.random.choice(("", "A")))
    area.pair("reference", stop, area.node(stop, local_ref=stop.designation))


def one_to_many(area: Area) -> None:
    stop = area.stop()
    for _ in range(area.random.randint(2, 3)):
        area.pair("reference", stop, area.node(stop, area.random.uniform(5, 35)))


def many_to_one(area: Area) -> None:
    stops = [area.stop(east=18 * place) for place in range(area.random.randint(2, 3))]
    node = area.node(at=(12, 0))
    for stop in stops:
        area.pair("reference", stop, node)


def lettered(area: Area) -> None:
    """Mappers write small letters where the register has capitals."""
    for stop in _lettered_stops(area, most=6):
        node = area.node(stop, local_ref=area.random.choice((stop.designation, stop.designation.lower())))
        area.pair("reference", stop, node)
        area.called_at(stop, node)


def lettered_twins(area: Area) -> None:
    """Each platform drawn twice: where one waits, and where the vehicle stops. Only the first has a letter."""
    for stop in _lettered_stops(area, most=3):
        for node in (
            area.node(stop, area.random.uniform(0, 5), local_ref=stop.designation),
            area.node(stop, area.random.uniform(0, 5), public_transport="stop_position"),
        ):
            area.pair("reference", stop, node)


def named(area: Area) -> None:
    stop = area.stop()
    name, uic_name = area.random.choice(((area.name, ""), (area.short_name, area.name)))
    node = area.node(stop, area.random.uniform(0, 60), uic_ref="", name=name, uic_name=uic_name)
    area.pair("name", stop, node)


def named_and_lettered(area: Area) -> None:
    for stop in _lettered_stops(area, most=4):
        area.pair("name", stop, area.node(stop, uic_ref="", local_ref=stop.designation))


def across_the_road(area: Area) -> None:
    """Two platforms so close that only the direction of what calls there tells them apart."""
    for stop in (area.stop(north=0), area.stop(north=14)):
        node = area.mute_node(stop, area.random.uniform(2, 12), name=area.short_name)
        area.pair("routes", stop, node)
        area.called_at(stop, node)


# --- found by where they are --------------------------------------------------------------------------------


def unlettered(area: Area) -> None:
    for stop in [area.stop(east=30 * place) for place in range(area.random.randint(2, 4))]:
        area.pair("together by reference", stop, area.node(stop))


def unlettered_and_shifted(area: Area) -> None:
    """All drawn too far east: the nearest of the second platform is the first one's node. Only together they fit."""
    east = area.random.uniform(16, 20)
    for place in range(3):
        stop = area.stop(east=30 * place)
        area.pair("together by reference", stop, area.node(at=(30 * place + east, 0)))


def unlettered_and_named(area: Area) -> None:
    for stop in [area.stop(east=30 * place) for place in range(area.random.randint(2, 3))]:
        area.pair("together by name", stop, area.node(stop, uic_ref=""))


def lettered_only(area: Area) -> None:
    for stop in _lettered_stops(area, most=3):
        area.pair("platform", stop, area.mute_node(stop, local_ref=stop.designation))


def alone_together(area: Area) -> None:
    stop = area.stop()
    area.pair("single", stop, area.mute_node(stop, area.random.uniform(0, 48)))


def clearly_nearer(area: Area) -> None:
    """The other node is a stop that the register does not have."""
    stop = area.stop()
    area.pair("clearly nearest", stop, area.mute_node(stop, area.random.uniform(0, 5)))
    area.mute_node(at=(area.random.uniform(28, 45), 0))


def alone_in_the_end(area: Area) -> None:
    """The second stop has two candidates until the first has taken one of them."""
    first, second = area.stop(), area.stop(east=40)
    area.pair("clearly nearest", first, area.mute_node(first, area.random.uniform(0, 3)))
    area.pair("single again", second, area.mute_node(at=(55, area.random.uniform(-4, 4))))


# --- found, and something is wrong --------------------------------------------------------------------------


def far_away(area: Area) -> None:
    stop = area.stop()
    least, most = area.random.choice(((16, 24), (27, 78), (83, 140)))
    area.pair("reference", stop, area.node(stop, area.random.uniform(least, most)))


def wrong_name(area: Area) -> None:
    stop = area.stop()
    area.pair("reference", stop, area.node(stop, name=f"{area.name} alt", uic_name=""))


def wrong_letter(area: Area) -> None:
    stop = area.stop(designation="A")
    area.pair("reference", stop, area.node(stop, local_ref="B"))


def wrong_operator(area: Area) -> None:
    stop = area.stop()
    area.pair("reference", stop, area.node(stop, operator="Dorfbus"))


def unknown_reference(area: Area) -> None:
    """Two digits exchanged, and there is no such stop."""
    stop = area.stop()
    area.pair("name", stop, area.node(stop, uic_ref=f"58{area.number[2:]}"))


def twice_in_the_register(area: Area) -> None:
    for letter in "AB":
        stop, again = area.stop(designation=letter), area.stop(east=3, designation=letter)
        node = area.node(stop, local_ref=letter)
        area.pair("reference", stop, node)
        area.pair("reference", again, node)


def twice_on_the_map(area: Area) -> None:
    for stop in (area.stop(designation="1"), area.stop(east=60, designation="2")):
        area.pair("reference", stop, area.node(stop, local_ref=stop.designation))
        area.pair("reference", stop, area.node(stop, area.random.uniform(15, 25), local_ref=stop.designation))


# --- not found, and rightly so ------------------------------------------------------------------------------


def only_in_the_register(area: Area) -> None:
    area.stop()


def only_on_the_map(area: Area) -> None:
    area.node(uic_ref=area.random.choice(("", f"80{area.number[2:]}")))


def too_far(area: Area) -> None:
    area.mute_node(area.stop(), area.random.uniform(53, 130))


def one_platform_more(area: Area) -> None:
    """The register has three, the map two."""
    stops = [area.stop(east=25 * place, designation="ABC"[place]) for place in range(3)]
    for stop in stops[:2]:
        area.pair("reference", stop, area.node(stop, local_ref=stop.designation))


def other_letters(area: Area) -> None:
    """As many on both sides, but the second has another letter; near, or further away."""
    first = area.stop(designation="A")
    area.stop(east=area.random.choice((25, 65)), designation="B")
    area.pair("reference", first, area.node(first, local_ref="A"))
    area.node(at=(-3, 20), local_ref="D")


def side_by_side(area: Area) -> None:
    """Another stop is so near that it could have the node that is left over here. It is not on the map."""
    first = area.stop(designation="A")
    area.stop(east=-60, designation="B")
    area.stop_of_another(east=30)
    area.pair("reference", first, area.node(first, local_ref="A"))
    area.node(at=(35, 5), local_ref="D")


def not_ours(area: Area) -> None:
    """Beside a valid platform the register has others that must not be looked at."""
    one_to_one(area)
    (stop,) = area.stops
    area.ignore(stop, valid_to="2019-12-14")
    area.ignore(stop, kind="BOARDING_AREA")
    area.ignore(stop, country="80")


# --- too hard -----------------------------------------------------------------------------------------------


def reference_of_another(area: Area) -> None:
    """A slip that leads to another stop. No rule can see that, and the pair is not found."""
    stop = area.stop()
    area.pair(BEYOND, stop, area.node(stop, uic_ref=area.elsewhere, name=area.short_name, uic_name=""))


def too_much_alike(area: Area) -> None:
    """They say nothing and stand in between. A rule that found these pairs would be guessing."""
    first, second = area.stop(), area.stop(east=12)
    area.pair(BEYOND, first, area.mute_node(at=(4, 3)))
    area.pair(BEYOND, second, area.mute_node(at=(8, -3)))


def stranger(area: Area) -> None:
    """Not on the map, but a node that says nothing is near, and is something else. It will be taken for the stop."""
    area.mute_node(area.stop(), area.random.uniform(20, 48))


SITUATIONS: dict[Situation, float] = {
    one_to_one: 24,
    one_to_many: 7,
    many_to_one: 6,
    lettered: 14,
    lettered_twins: 5,
    named: 6,
    named_and_lettered: 4,
    across_the_road: 6,
    unlettered: 5,
    unlettered_and_shifted: 2,
    unlettered_and_named: 3,
    lettered_only: 3,
    alone_together: 3,
    clearly_nearer: 2,
    alone_in_the_end: 2,
    far_away: 3,
    wrong_name: 1,
    wrong_letter: 1,
    wrong_operator: 1,
    unknown_reference: 1,
    twice_in_the_register: 1.5,
    twice_on_the_map: 1.5,
    only_in_the_register: 2,
    only_on_the_map: 2,
    too_far: 2,
    one_platform_more: 1.5,
    other_letters: 1.5,
    side_by_side: 1.5,
    not_ours: 2,
    reference_of_another: 0.4,
    too_much_alike: 0.4,
    stranger: 0.4,
}
"""How often each is drawn, relative to the others."""


def _lettered_stops(area: Area, most: int) -> list[Stop]:
    letters = area.random.choice(("ABCDEF", "123456"))[: area.random.randint(2, most)]
    return [area.stop(east=22 * place, designation=letter) for place, letter in enumerate(letters)]
