"""Which replica asks first for what will be due: each moment has an order of the live replicas, and all compute it alike.

The first in that order asks at the moment. Each of the others asks `BACKUP` seconds later than the one before it, unless
it has claimed meanwhile for another reason: a claim takes everything that is due. So one that died, left or is full
delays a fire, and never holds it. See docs/decisions/0079-ranked-claims.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b

from fencepost.store.base import Upcoming

BACKUP = 0.15
"""Seconds between the replica that asks for a moment and the next one that does."""
IN_FLIGHT = 0.01
"""Seconds in which the claim of a moment's first replica is probably on its way."""
SAME = 0.005
"""Seconds by which two estimates of one moment may differ."""


@dataclass(frozen=True, slots=True)
class Turn:
    """When this replica asks next."""

    seconds: float
    behind: frozenset[str] = frozenset()
    """Replicas that should have asked before it. If something is still due then, they did not."""


def order(moment: datetime, replicas: Collection[str]) -> list[str]:
    """A rendezvous hash: where one replica is added or gone, the others keep their order."""
    name = moment.isoformat()
    return sorted(replicas, key=lambda replica: blake2b(f"{name} {replica}".encode(), digest_size=8).digest())


def next_turn(
    me: str,
    others: Collection[str],
    wake_in: float,
    ahead: Sequence[Upcoming],
    known: Known | None,
    most: int,
) -> Turn:
    """`ahead`: what will be due, of which the first is due in `wake_in` seconds; `known`: what was known before this
    reply; `most`: how many a reply lists at the most."""
    if not others or not ahead:
        return Turn(wake_in)
    fires = Counter(each.at for each in ahead)
    replicas = {*others, me}
    best: Turn | None = None
    for each in dict.fromkeys(ahead):
        due = wake_in + (each.at - ahead[0].at).total_seconds()
        if best is not None and due >= best.seconds:
            break
        ranked = order(each.at, replicas)
        place = ranked.index(me)
        # As many ask at once as there are fires. What is new and near may be known to this replica alone.
        is_new = known is not None and known.misses(each.at) and due < BACKUP * len(replicas)
        last_of_list = len(ahead) >= most and each.at == ahead[-1].at
        if each.leader_only or is_new or last_of_list or place < fires[each.at]:
            turn = Turn(due)
        else:
            turn = Turn(due + BACKUP * place, frozenset(ranked[:place]))
        if best is None or turn.seconds < best.seconds:
            best = turn
    assert best is not None
    return best


@dataclass(frozen=True, slots=True)
class Known:
    """What the last reply to a claim said of the moments ahead."""

    ahead: tuple[Upcoming, ...]
    first_at: float
    """When the first is due, on the replica's steady clock."""
    complete: bool
    """Nothing was left out at the end."""

    def misses(self, moment: datetime) -> bool:
        """It was planned, or a run's end made it due, after that reply."""
        within = self.complete or moment <= self.ahead[-1].at
        return within and all(each.at != moment for each in self.ahead)

    def expects(self, steady: float) -> bool:
        """Whether what is due then is one of these, for which a replica asks anyhow."""
        if not self.ahead:
            return False
        passed = timedelta(seconds=steady - self.first_at)
        first = self.ahead[0].at
        return any(-SAME <= (passed - (each.at - first)).total_seconds() <= IN_FLIGHT for each in self.ahead)
