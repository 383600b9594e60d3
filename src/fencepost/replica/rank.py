"""Which replica asks first for what will be due: each moment has an order of the replicas, and all compute it alike.

The first in that order asks at the moment. Each of the others asks `BACKUP` seconds after the one before it, unless it
has asked meanwhile for another reason: a claim takes everything that is due. So a replica that died, left, is full or
cut off delays a fire, and never holds it. See docs/decisions/0079-ranked-claims.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b

from fencepost.store.base import Upcoming

BACKUP = 0.2
"""Seconds between the replica that asks for a moment and the next one that does."""
MOST_AHEAD = 100
PRIME = 2**61 - 1


def moments_to_know(peers: int) -> int:
    """How many moments a replica must know to be first for one of them, very probably."""
    return min(MOST_AHEAD, 6 * (peers + 1)) if peers else 0


@dataclass(frozen=True, slots=True)
class Ahead:
    """What the reply to a claim said of the moments ahead; there is at least one."""

    moments: tuple[Upcoming, ...]
    is_all: bool
    """No more was planned."""

    def has(self, moment: datetime | None) -> bool:
        return any(each.at == moment for each in self.moments)

    def lacks(self, moment: datetime) -> bool:
        """The moment was planned, or the end of a run made it due, after that reply."""
        return (self.is_all or moment < self.moments[-1].at) and not self.has(moment)


@dataclass(frozen=True, slots=True)
class NextClaim:
    """When this replica asks next, and for which moment."""

    seconds: float
    moment: datetime
    before: frozenset[str] = frozenset()
    """Replicas that ask for it earlier. If it is still due when this one asks, they did not."""


def next_claim(
    me: str, peers: Collection[str], wake_in: float, ahead: Ahead, known: Ahead | None
) -> NextClaim:
    """`wake_in`: seconds until the first moment ahead. `known`: what the reply before this one listed."""
    first, last = ahead.moments[0].at, ahead.moments[-1].at
    fires = Counter(each.at for each in ahead.moments)
    best: NextClaim | None = None
    for each in ahead.moments:
        due = wake_in + (each.at - first).total_seconds()
        if best is not None and due >= best.seconds:
            break
        before = ranked_before(me, peers, each.at)
        # As many ask at once as there are fires. What follows the last one is not known.
        at_once = each.leader_only or len(before) < fires[each.at] or (each.at == last and not ahead.is_all)
        # What is new may be known to this replica alone, until the others have asked.
        is_new = known is not None and known.lacks(each.at) and due < BACKUP * (len(peers) + 1)
        if at_once or is_new:
            before = frozenset()
        claim = NextClaim(due + BACKUP * len(before), each.at, before)
        if best is None or claim.seconds < best.seconds:
            best = claim
    assert best is not None
    return best


def ranked_before(me: str, peers: Collection[str], moment: datetime) -> frozenset[str]:
    """The replicas that ask for this moment before `me`. Where one joins or leaves, the others keep their order."""
    factor = _number_of(moment.isoformat())
    mine = factor * _number_of(me) % PRIME
    return frozenset(each for each in peers if factor * _number_of(each) % PRIME < mine)


@lru_cache(maxsize=4096)
def _number_of(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest()) + 1
