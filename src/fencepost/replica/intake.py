"""The intake: the leader moves fires that callers asked for in their own transactions into the ledger
(`store/inbox.py`)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from fencepost.replica.service import Service
from fencepost.store.inbox import Inbox, Letter

if TYPE_CHECKING:
    from fencepost.replica.replica import Replica

log = logging.getLogger("fencepost")

BATCH = 200
NOT_USED = 5.0
"""Least seconds between two checks for an inbox that does not exist, however many notifications there are."""
GIVE_UP = 3600.0
"""Seconds for which a job that does not exist is waited for: a new release may declare it."""


class Intake(Service):
    def __init__(self, replica: Replica, inbox: Inbox) -> None:
        super().__init__(replica)
        self._inbox = inbox
        self._poll_at = 0.0

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            self._inbox.end()

    async def step(self) -> float | None:
        replica, inbox = self.replica, self._inbox
        if replica.term() is None:
            await asyncio.to_thread(inbox.close)
            return replica.settings.heartbeat.total_seconds()
        if (early := self._poll_at - replica.clock.steady()) > 0:
            return early
        letters = await asyncio.to_thread(inbox.waiting, BATCH)
        if letters is None:
            await asyncio.to_thread(inbox.close)
            self._poll_at = replica.clock.steady() + min(NOT_USED, inbox.check_table_every)
            return inbox.check_table_every
        done = [letter.number for letter in letters if await self._is_done(letter)]
        if done:
            await asyncio.to_thread(inbox.remove, done)
            replica.worker.wake()
        return 0.0 if len(done) == BATCH else inbox.poll_every

    async def _is_done(self, letter: Letter) -> bool:
        """Whether its row can go. Adding a fire twice is adding it once: it is found by its key."""
        fire = letter.fire
        if fire is None:
            log.error(
                "a row of the inbox holds no fire and was removed; only trigger(connection=…) may write there"
            )
            return True
        outcome = (await self.replica.store.add_fire(fire)).outcome
        if outcome == "active":
            log.warning("%s was asked for with if_active='refuse', and another run is active", fire.key)
        if outcome == "no such job" and letter.age_seconds > GIVE_UP:
            log.error("%s was asked for, and there is no job %r: it is given up", fire.key, fire.job_id)
            return True
        return outcome in ("added", "exists", "active")
