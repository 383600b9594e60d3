"""Actions that people have scheduled: claimed one at a time, wherever somebody looks at one and then acts on it.

A job looks at all of them every second, and a request may ask for one of them at the same moment, on any instance. An
action may run once in its period. The claim is a transaction of three steps:

1. the advisory lock of the action, if nobody has it: no waiting, and gone with the transaction;
2. look whether it is due, and write the run down;
3. commit: the run is recorded, and then the lock goes.

Without the record the lock would only keep apart those who come at the very same moment: whoever looked a minute later
would find the lock free, and run the action again. And the lock has a statement of its own. A statement sees what was
committed when it began: one that took the lock and looked as well could get the lock from somebody who has just
committed, and not see what.
"""

from __future__ import annotations

import asyncio
import random
from datetime import datetime
from enum import Enum

from rolling_deploy.database import Connection

SPACE = 0x61637473
"""`acts`: the half of the key that sets our locks apart from those of others in this database."""
TRIES = 5
PAUSE = 0.05
"""Seconds, about, between two tries."""

# The number of an action is a bigint, the other half of a key an int4. Two actions that fall on the same one get in
# each other's way now and then, which costs a try; which of them has run is said by the table.
LOCK = "select pg_try_advisory_xact_lock(%s, hashint8(%s))"

RECORD = """
insert into runs (action_id, due_at, claimed_by)
    select id, slot, %s
    from (select id, date_bin(every, clock_timestamp(), anchor) as slot from actions where id = %s) due
    where not exists (select from runs where action_id = id and due_at >= slot)
    returning due_at
"""


class Claim(Enum):
    WON = "won"
    BUSY = "busy"
    """Somebody has the lock, of this action or of one with the same key. What for is not known: ask again."""
    NOT_DUE = "not due"
    """It was claimed in this period, or there is no such action."""


async def run_if_due(connection: Connection, action_id: int, by: str) -> Claim:
    """Claim it, a few times if somebody is in the way, and act if it is ours."""
    for _ in range(TRIES):
        claimed, due_at = await claim(connection, action_id, by)
        if due_at is not None:
            await act(connection, action_id, due_at, by)
        if claimed is not Claim.BUSY:
            return claimed
        await asyncio.sleep(PAUSE * random.uniform(0.5, 1.5))
    return Claim.BUSY


async def claim(connection: Connection, action_id: int, by: str) -> tuple[Claim, datetime | None]:
    """For which due time it is ours, if it is. An error permits nothing: it passes to the caller, who does not act."""
    async with connection.transaction():
        locked = await (await connection.execute(LOCK, (SPACE, action_id))).fetchone()
        if locked != (True,):
            return Claim.BUSY, None
        recorded = await (await connection.execute(RECORD, (by, action_id))).fetchone()
    return (Claim.WON, recorded[0]) if recorded else (Claim.NOT_DUE, None)


async def act(connection: Connection, action_id: int, due_at: datetime, by: str) -> None:
    """Whatever the action is for; here, a message. No lock is held meanwhile, however long it takes: the record is the
    claim. A crash between the two costs this period's message; what must survive one is a job with
    `after_crash="rerun"`, such as `export` in `app.py`."""
    await connection.execute("insert into messages values (%s, %s, %s)", (action_id, due_at, by))
