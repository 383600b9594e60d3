"""Triggers combined: `a | b` fires when one of them does, `a & b` when both do, `a - b` when only `a` does.

A search that finds nothing in `MOST_STEPS` steps ends: the combination then has no more fires. What never fires at all
is refused when it is written.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from typing import Any, TypeVar

from fencepost.errors import ConfigurationError
from fencepost.model.triggers.base import LeftOut, Trigger
from fencepost.model.triggers.times import EARLIEST, LATEST, ONE_MICROSECOND, check_keys

Some = TypeVar("Some", bound=Trigger)

MOST_STEPS = 10_000
STEPS_BEFORE_A_LEAP = 3
MOST_MEMBERS = 50
DEEPEST = 10
"""How many combinations may stand in one another."""


def union(*members: Trigger) -> Union:
    return Union(_checked(_flat(Union, members)))


def intersection(*members: Trigger) -> Intersection:
    found = Intersection(_checked(_flat(Intersection, members)))
    return _fires(found, "no fire that all of them have was found", "combine triggers that share times")


def difference(of: Trigger, without: Trigger) -> Difference:
    _checked((of, without))
    return _fires(Difference(of, without), "the second has all fires of the first", "take out fewer")


@dataclass(frozen=True, slots=True)
class Union(Trigger):
    """Made by `|`."""

    members: tuple[Trigger, ...]

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return self.members

    @property
    def local_zone(self) -> str | None:
        return _common_zone(self.members)

    def left_out(self, moment: datetime, until: datetime) -> Iterator[LeftOut]:
        """What one member leaves out and no other fires."""
        each = (member.left_out(moment, until) for member in self.members)
        for found in merge(*each, key=lambda found: found.at):
            if not _has(self, found.at):
                yield found

    def resolved(self, anchor: datetime) -> Union:
        return Union(_flat(Union, (member.resolved(anchor) for member in self.members)))

    def bound(self, job_id: str) -> Union:
        return union(*(member.bound(job_id) for member in self.members))

    def listed_until(self, moment: datetime) -> tuple[datetime, ...]:
        return tuple(sorted({fire for member in self.members for fire in member.listed_until(moment)}))

    def describe(self) -> str:
        return "; or ".join(map(_bracketed, self.members))

    def to_json(self) -> dict[str, Any]:
        return {"type": "any", "members": [member.to_json() for member in self.members]}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        fires = merge(*(member.after(moment) for member in self.members))
        return (fire for fire, _ in itertools.groupby(fires))


@dataclass(frozen=True, slots=True)
class Intersection(Trigger):
    """Made by `&`."""

    members: tuple[Trigger, ...]

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return self.members

    @property
    def local_zone(self) -> str | None:
        return _common_zone(self.members)

    def resolved(self, anchor: datetime) -> Intersection:
        return Intersection(_flat(Intersection, (member.resolved(anchor) for member in self.members)))

    def bound(self, job_id: str) -> Intersection:
        return intersection(*(member.bound(job_id) for member in self.members))

    def listed_until(self, moment: datetime) -> tuple[datetime, ...]:
        listed = {fire for member in self.members for fire in member.listed_until(moment)}
        return tuple(sorted(fire for fire in listed if _has(self, fire)))

    def describe(self) -> str:
        return "; only together with ".join(map(_bracketed, self.members))

    def to_json(self) -> dict[str, Any]:
        return {"type": "all", "members": [member.to_json() for member in self.members]}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        """Each member in turn proposes its first fire that is not before the proposal so far; one that all agree to
        is a fire. The proposal only grows, by leaps of the sparsest member."""
        members = [_Ahead(member, moment) for member in self.members]
        proposal, agreed, steps = min(moment, LATEST) + ONE_MICROSECOND, 0, 0
        for member in itertools.cycle(members):
            found, steps = member.at_or_after(proposal), steps + 1
            if found is None or steps > MOST_STEPS:
                return
            proposal, agreed = found, agreed + 1 if found == proposal else 1
            if agreed == len(members):
                yield proposal
                proposal, agreed, steps = proposal + ONE_MICROSECOND, 0, 0


@dataclass(frozen=True, slots=True)
class Difference(Trigger):
    """Made by `-`."""

    of: Trigger
    without: Trigger

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return self.of, self.without

    @property
    def local_zone(self) -> str | None:
        return self.of.local_zone

    def left_out(self, moment: datetime, until: datetime) -> Iterator[LeftOut]:
        of = itertools.takewhile(lambda fire: fire <= until, self.of.after(moment))
        taken = (
            LeftOut(fire, f"except {self.without.describe()}") for fire in of if _has(self.without, fire)
        )
        return merge(taken, self.of.left_out(moment, until), key=lambda found: found.at)

    def resolved(self, anchor: datetime) -> Difference:
        return Difference(self.of.resolved(anchor), self.without.resolved(anchor))

    def bound(self, job_id: str) -> Difference:
        return difference(self.of.bound(job_id), self.without.bound(job_id))

    def listed_until(self, moment: datetime) -> tuple[datetime, ...]:
        return tuple(fire for fire in self.of.listed_until(moment) if not _has(self.without, fire))

    def describe(self) -> str:
        return f"{_bracketed(self.of)}; except {_bracketed(self.without)}"

    def to_json(self) -> dict[str, Any]:
        return {"type": "except", "of": self.of.to_json(), "without": self.without.to_json()}

    def _after(self, moment: datetime) -> Iterator[datetime]:
        exceptions, in_a_row = _Ahead(self.without, moment), 0
        for fire in self.of.after(moment):
            if fire != exceptions.at_or_after(fire):
                in_a_row = 0
                yield fire
            elif (in_a_row := in_a_row + 1) == MOST_STEPS:
                return


class _Ahead:
    """The fires of a trigger, asked for at growing moments. A near one is stepped to, a far one leapt to."""

    def __init__(self, trigger: Trigger, moment: datetime) -> None:
        self._trigger = trigger
        self._fires = trigger.after(moment)
        self._found = next(self._fires, None)

    def at_or_after(self, moment: datetime) -> datetime | None:
        for _ in range(STEPS_BEFORE_A_LEAP):
            if self._found is None or self._found >= moment:
                return self._found
            self._found = next(self._fires, None)
        if self._found is not None and self._found < moment:
            self._fires = self._trigger.after(moment - ONE_MICROSECOND)
            self._found = next(self._fires, None)
        return self._found


def _has(trigger: Trigger, moment: datetime) -> bool:
    return trigger.next_after(moment - ONE_MICROSECOND) == moment


def _common_zone(members: Iterable[Trigger]) -> str | None:
    zones = {member.local_zone for member in members}
    return zones.pop() if len(zones) == 1 else None


def _bracketed(member: Trigger) -> str:
    words = member.describe()
    return f"({words})" if isinstance(member, Union | Intersection | Difference) else words


# Checking what is combined.


def _flat(kind: type[Union] | type[Intersection], members: Iterable[Trigger]) -> tuple[Trigger, ...]:
    """Without brackets that mean nothing and without repetition, in an order of their own: equal combinations have
    equal JSON."""
    flat: dict[str, Trigger] = {}
    for member in members:
        for each in member.members if isinstance(member, kind) else (member,):
            flat[json.dumps(each.to_json(), sort_keys=True)] = each
    return tuple(flat[text] for text in sorted(flat))


def _checked(members: tuple[Trigger, ...]) -> tuple[Trigger, ...]:
    if sum(map(_size, members)) > MOST_MEMBERS:
        raise ConfigurationError(
            f"more than {MOST_MEMBERS} triggers are combined; use lists in cron fields, or several jobs."
        )
    if max(map(_depth, members), default=0) >= DEEPEST:
        raise ConfigurationError(f"more than {DEEPEST} combinations stand in one another; write fewer.")
    return members


def _size(trigger: Trigger) -> int:
    return sum(map(_size, trigger.parts)) or 1


def _depth(trigger: Trigger) -> int:
    return 1 + max(map(_depth, trigger.parts), default=0)


def _fires(trigger: Some, problem: str, remedy: str) -> Some:
    """Refuses what never fires, as far as that is known before the job is."""
    if trigger.resolved(EARLIEST) != trigger:
        raise ConfigurationError(
            f"{trigger.describe()!r} depends on when the job is first declared: give every(…, anchor=…) "
            "where it is compared with another trigger."
        )
    if trigger.is_bound and trigger.next_after(EARLIEST) is None:
        raise ConfigurationError(f"{trigger.describe()!r} never fires: {problem}; {remedy}.")
    return trigger


# Reading JSON.

Reader = Callable[[Mapping[str, Any]], Trigger]


def union_from_json(value: Mapping[str, Any], read: Reader) -> Union:
    return Union(_members_from_json(value, Union, read))


def intersection_from_json(value: Mapping[str, Any], read: Reader) -> Intersection:
    return Intersection(_members_from_json(value, Intersection, read))


def difference_from_json(value: Mapping[str, Any], read: Reader) -> Difference:
    check_keys(value, ["of", "without"], [])
    of, without = _checked((read(value["of"]), read(value["without"])))
    return Difference(of, without)


def _members_from_json(
    value: Mapping[str, Any], kind: type[Union] | type[Intersection], read: Reader
) -> tuple[Trigger, ...]:
    check_keys(value, ["members"], [])
    members = value["members"]
    if not isinstance(members, list) or not members:
        raise ConfigurationError(f"members {members!r} is not a list of triggers; give at least one.")
    return _checked(_flat(kind, map(read, members)))
