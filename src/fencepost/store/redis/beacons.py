"""Whose session is gone, by who is subscribed to its channel.

A session that is gone permits taking leadership, never more: the process may live. So it is asked only about the
leader, and believed only of one that was seen, over this very connection, and is missing twice in a row: after a
restart of the server nobody is subscribed for a moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fencepost.store.redis.keys import Keys
from fencepost.store.redis.link import Link

MISSING = 2


class Beacons:
    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._generation = 0
        self._missed: Counter[str] = Counter()
        """Of those seen before: how many times in a row."""

    async def gone(self, replicas: Sequence[str]) -> frozenset[str]:
        if not replicas:
            return frozenset()
        channels = {self._keys.alive(replica): replica for replica in replicas}
        reply = await self._link.ask("PUBSUB", "NUMSUB", *channels)
        if self._generation != self._link.generation:
            self._generation = self._link.generation
            self._missed.clear()
        for channel, subscribers in zip(reply[::2], reply[1::2], strict=True):
            replica = channels[channel]
            if int(subscribers) > 0:
                self._missed[replica] = 0
            elif replica in self._missed:
                self._missed[replica] += 1
        for other in self._missed.keys() - set(replicas):
            del self._missed[other]
        return frozenset(replica for replica, times in self._missed.items() if times >= MISSING)
