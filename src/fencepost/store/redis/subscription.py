"""The subscription: hints and signs of the leader come over it, and that it stands is the sign of a live session."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Any

from redis.exceptions import RedisError

from fencepost.clock import SystemClock
from fencepost.errors import FencepostError
from fencepost.store.redis.keys import Keys
from fencepost.store.redis.link import Link
from fencepost.store.redis.topology import Primary
from fencepost.store.waiting import Assurance

log = logging.getLogger("fencepost")

QUIET_FAILURES = 5
PATIENCE = 2.0
"""Seconds to wait for a subscription. Without it things are only slower."""


class RedisSubscription:
    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._wanted: set[str] = {keys.hint, keys.lead}
        self._leader = Assurance()
        self._confirmed: set[str] = set()
        self._connection: Any = None
        self._primary: Primary | None = None
        """Where it leads to."""
        self._listening: asyncio.Task[None] | None = None
        self._hinted = False
        self._interrupted = False
        self._failures = 0
        self._changed = asyncio.Event()
        self._chance = random.Random()

    async def wait(self, seconds: float) -> bool:
        """Until there is a hint. One that came while no caller waited counts."""
        self._listen()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._hinted:
                    self._changed.clear()
                    await self._changed.wait()
        hinted, self._hinted = self._hinted, False
        return hinted

    def assured(self, replica: str | None) -> float:
        """Seconds until this leader counts as silent."""
        return self._leader.lasts(replica, _clock.steady())

    async def announce(self, replica: str) -> None:
        """As long as this process lives and is connected, everybody can see it."""
        await self._subscribe(self._keys.alive(replica))

    async def retract(self, replica: str) -> None:
        channel = self._keys.alive(replica)
        self._wanted.discard(channel)
        if self._connection is not None and channel in self._confirmed:
            with contextlib.suppress(RedisError, OSError):
                await self._connection.send_command("UNSUBSCRIBE", channel)

    async def follow(self, primary: Primary | None) -> None:
        """The store is there now: hints and sessions elsewhere mean nothing any more."""
        if self._connection is not None and self._primary != primary:
            with contextlib.suppress(RedisError, OSError):
                await self._connection.disconnect(nowait=True)

    async def close(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None and listening.get_loop() is asyncio.get_running_loop():
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening

    async def _subscribe(self, channel: str) -> None:
        self._wanted.add(channel)
        self._listen()
        if self._connection is not None and channel not in self._confirmed:
            with contextlib.suppress(RedisError, OSError):
                await self._connection.send_command("SUBSCRIBE", channel)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while channel not in self._confirmed:
                    self._changed.clear()
                    await self._changed.wait()

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        if self._listening is None or self._listening.done() or self._listening.get_loop() is not loop:
            self._changed, self._confirmed, self._connection = asyncio.Event(), set(), None
            self._listening = loop.create_task(self._keep_listening(), name="fencepost-channel")

    async def _keep_listening(self) -> None:
        while True:
            try:
                primary = await self._link.locate()
                self._connection, self._primary = await self._link.connect(primary), primary
                await self._take_messages(self._connection)
            except (FencepostError, RedisError, OSError) as error:
                self._failures += 1
                if self._failures == QUIET_FAILURES:
                    log.warning("no hints from the store, everything else goes on: %s", error)
            finally:
                connection, self._connection = self._connection, None
                self._confirmed.clear()
                if connection is not None:
                    with contextlib.suppress(RedisError, OSError):
                        await connection.disconnect(nowait=True)
            # At once at first: until it is back, others may take this session for gone.
            await asyncio.sleep(min(5.0, self._failures - 1) * self._chance.uniform(0.5, 1.0))

    async def _take_messages(self, connection: Any) -> None:
        # Nothing may come for long: keepalive notices a peer that is no longer there.
        await connection.send_command("SUBSCRIBE", *sorted(self._wanted))
        while True:
            kind, channel, said = await connection.read_response()
            if kind == "message" and channel == self._keys.lead:
                self._leader.heard(said, _clock.steady())
                continue
            if kind == "message":
                self._hinted = True
            elif kind == "subscribe":
                # After an interruption some hints may have been missed.
                self._hinted = self._hinted or (channel == self._keys.hint and self._interrupted)
                self._interrupted = True
                self._confirmed.add(channel)
                self._failures = 0
            elif kind == "unsubscribe":
                self._confirmed.discard(channel)
            self._changed.set()


_clock = SystemClock()  # waiting takes real time, whatever clock the store was given
