"""One step of the general path: what it reads is the state of one moment, what it changes is one batch.

It reads what it needs in a few round trips, decides with the shared rules, and sends what it changes in one script.
That writes only if nothing the step has read was changed by another replica meanwhile; otherwise the step begins anew,
at a later moment. A job and all its fires count as one thing, with one *edition*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.clock import Moment
from fencepost.store.codec import moment
from fencepost.store.redis import scripts
from fencepost.store.redis.batch import Batch
from fencepost.store.redis.keys import Keys
from fencepost.store.redis.pages import Call
from fencepost.store.redis.scripts import Script
from fencepost.store.redis.values import REPLICA

CHUNK = 500
"""Jobs, fires or targets read at once."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a step is known to need, and reads when it begins."""

    jobs: Sequence[str] = ()
    replica: str = ""
    """Whose next jobs to decide are asked for."""
    term: int | str = ""
    """In which it must lead for leader-only ones; empty: in any."""
    most: int = 0
    """How many of them."""


NOTHING = Needs()


@dataclass(frozen=True, slots=True)
class FirstDecisions:
    """The first jobs to be decided by a replica, with the moments."""

    replica: str
    leads: bool
    most: int
    found: Sequence[str]


class Step:
    def __init__(self, call: Call, keys: Keys, now: tuple[str, str], needs: Needs = NOTHING) -> None:
        """`now`: the moment, if a test owns the time."""
        self.call = call
        self.keys = keys
        self.batch = Batch()
        ids = needs.jobs[:CHUNK]
        wall, steady, self.lease, replicas, jobs, first, leads = self.script(
            scripts.BEGIN, *now, needs.replica, needs.term, needs.most, *ids
        )
        self.jobs = dict(zip(ids, jobs, strict=True))
        """As they were read with the beginning, each until it is taken."""
        self.first_decisions = FirstDecisions(needs.replica, bool(leads), needs.most, first)
        self.at = Moment(moment(int(wall)), float(steady))
        self.of_history: str = self.lease[-1] or ""
        self.batch.check(keys.leader, "history", self.of_history)
        self.replicas = {values[0]: dict(zip(REPLICA, values, strict=True)) for values in replicas}

    def script(self, script: Script, *args: Any) -> Any:
        return self.call("EVALSHA", script, self.keys.prefix, *args)

    def check_replica(self, id: str) -> None:
        """It must not change before this step is written."""
        read = self.replicas.get(id)
        self.batch.check(self.keys.replica(id), "edition", read["edition"] if read else "")


def chunks(values: Sequence[str]) -> Iterable[Sequence[str]]:
    return (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))
