"""Whose session is gone, by who is subscribed to its channel.

A session that is gone permits taking leadership, never more: the process may live. So it is asked only about the
leader, and believed only of one that was subscribed on this run of the server and is missing twice in a row: after a
restart of the server no replica is subscribed for a moment, and a replica that may not subscribe never is.

That it was subscribed a follower has seen itself, over this very connection, or the leader has noted it with its
presence. The note is for a leader that dies before any follower has seen it lead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fencepost.store.redis import scripts
from fencepost.store.redis.keys import Keys
from fencepost.store.redis.link import Link

MISSING = 2


class RedisBeacons:
    server_run = ""
    """Which run of the server the link leads to."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._generation = 0
        self._noted: dict[str, int] = {}
        """By replica of this process: the generation of the link on which its session was noted."""
        self._missed: Counter[str] = Counter()
        """Of those known to have been subscribed: how many times in a row they were not."""

    async def note(self, replica: str, joins: bool) -> None:
        """Note the session of this replica, unless that is done. `joins`: its presence is new."""
        generation, channel = self._link.generation, self._keys.alive(replica)
        if self._noted.get(replica) == generation and not joins:
            return
        args = (self._keys.prefix, replica, channel, self.server_run)
        if await self._link.ask("EVALSHA", scripts.SESSION, *args):
            self._noted[replica] = generation

    def doubts(self, replica: str | None) -> bool:
        """Whether it was missing when it was last asked about, for the first time: the next question decides."""
        return replica is not None and 0 < self._missed.get(replica, 0) < MISSING

    def heard_of(self, replica: str) -> None:
        """It lives, so it is not missing."""
        if replica in self._missed:
            self._missed[replica] = 0

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
            elif replica in self._missed or await self._was_noted(replica):
                self._missed[replica] += 1
        for other in self._missed.keys() - set(replicas):
            del self._missed[other]
        return frozenset(replica for replica, times in self._missed.items() if times >= MISSING)

    async def _was_noted(self, replica: str) -> bool:
        session = await self._link.ask("HGET", self._keys.replica(replica), "session")
        return session is not None and session == self.server_run
