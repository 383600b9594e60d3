"""One step of the general path: what it reads is the state of one moment, what it changes is one batch.

It reads what it needs in a few round trips, decides with the shared rules, and sends what it changes in one script.
That writes only if nothing the step has read was changed by another replica meanwhile; otherwise the step begins anew,
at a later moment. A job and all its fires count as one thing, with one *edition*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


class Step:
    def __init__(self, call: Call, keys: Keys, now: tuple[str, str]) -> None:
        """`now`: the moment, if a test owns the time."""
        self.call = call
        self.keys = keys
        self.batch = Batch()
        wall, steady, self.lease, replicas = self.script(scripts.BEGIN, *now)
        self.at = Moment(moment(int(wall)), float(steady))
        self.of_history: str = self.lease[-1] or ""
        self.replicas = {values[0]: dict(zip(REPLICA, values, strict=True)) for values in replicas}

    def script(self, script: Script, *args: Any) -> Any:
        return self.call("EVALSHA", script, self.keys.prefix, *args)

    def check_replica(self, id: str) -> None:
        """It must not change before this step is written."""
        read = self.replicas.get(id)
        self.batch.check(self.keys.replica(id), "edition", read["edition"] if read else "")


def chunks(values: Sequence[str]) -> Iterable[Sequence[str]]:
    return (values[start : start + CHUNK] for start in range(0, len(values), CHUNK))
