"""How a step of the general path is taken: on a thread of its own, and again after a write conflict."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from fencepost.errors import FencepostError, StoreUnavailable
from fencepost.store.codec import micros
from fencepost.store.redis import scripts
from fencepost.store.redis.batch import WriteConflict
from fencepost.store.redis.fast import Now
from fencepost.store.redis.keys import Keys
from fencepost.store.redis.link import Link
from fencepost.store.redis.pages import Call
from fencepost.store.redis.rest import RedisWork
from fencepost.store.redis.step import NOTHING, Needs, Step
from fencepost.store.unreadable import UnreadableRows

ATTEMPTS = 30
"""How often a step is begun before the store counts as unavailable."""
GIVE_WAY_AFTER = 3
"""Write conflicts of one step after which the claims of this process give way to it."""
GIVE_WAY_FOR, GIVE_WAY_STEP = 1.0, 0.005
"""For how many seconds at the most, and how often that is checked."""
TOO_SLOW = -1
SLOW_ATTEMPTS = 3
"""The same for steps that take longer than a second: it is for the caller to take smaller ones."""
THREADS = 4


class Forgotten(StoreUnavailable):
    """The store is not the one that this process knows: it was emptied."""


class GeneralPath:
    def __init__(
        self,
        link: Link,
        keys: Keys,
        targets: dict[str, tuple[str, ...]],
        now: Callable[[], Now],
        registry: UnreadableRows,
    ) -> None:
        self._link = link
        self._keys = keys
        self._targets = targets
        self._now = now
        self._registry = registry
        self._chance = random.Random()
        self.conflicts = 0
        """How many write conflicts there were."""
        self._losing: set[int] = set()
        """Threads whose step has met several conflicts in a row."""
        self._threads: ThreadPoolExecutor | None = None
        self._threads_of = 0

    async def take(
        self,
        history: str,
        step: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        writes: bool = True,
        needs: Needs = NOTHING,
    ) -> Any:
        """One operation, over the rows of a step. `history`: of the store, as it is known here."""
        work = partial(self._take, self._link.generation, history, step, args, kwargs, writes, needs)
        return await asyncio.get_running_loop().run_in_executor(self._workers(), work)

    async def give_way(self) -> None:
        """Before a claim or a settle: let a step finish that keeps losing against them.

        Each claim renews the presence of its replica, and a heartbeat that may take over leadership compares that
        same row between reading and writing. On a busy machine a heartbeat takes longer than the time between two
        claims: it would lose to its own replica every time, and no follower could become the leader."""
        for _ in range(round(GIVE_WAY_FOR / GIVE_WAY_STEP)):
            if not self._losing:
                return
            await asyncio.sleep(GIVE_WAY_STEP)

    def close(self) -> None:
        if self._threads is not None and self._threads_of == os.getpid():
            self._threads.shutdown(wait=False)
        self._threads = None

    def _workers(self) -> ThreadPoolExecutor:
        if self._threads is None or self._threads_of != os.getpid():  # threads do not cross a fork
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="fencepost-store")
            self._threads_of = os.getpid()
        return self._threads

    def _take(self, *asked: Any) -> Any:
        try:
            return self._try(*asked)
        finally:
            self._losing.discard(threading.get_ident())

    def _try(
        self,
        generation: int,
        history: str,
        step: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        writes: bool,
        needs: Needs,
    ) -> Any:
        call, slow, over = partial(self._link.ask_from_thread, generation), 0, ""
        for attempt in range(ATTEMPTS):
            now = self._now()
            rows = RedisWork(Step(call, self._keys, now, needs), self._targets, self._registry)
            if rows.step.of_history != history:
                raise Forgotten(f"{self._link.name} has been emptied")
            try:
                reply = step(rows, rows.at, *args, **kwargs)
                if not writes:
                    return reply
                rows.save()
                committed = 1 if rows.step.batch.is_empty else self._commit(call, rows, now)
                if committed == 1:
                    return reply
                if committed == TOO_SLOW:
                    slow += 1
                else:
                    over = f", the last over {committed}"
                if slow == SLOW_ATTEMPTS:
                    raise StoreUnavailable(
                        f"{self._link.name}: a step took longer than a second {slow} times; the server or this process "
                        "is overloaded"
                    )
            except WriteConflict:
                pass
            except FencepostError:
                raise
            except Exception:
                # Rows read one after the other, while others write, may contradict each other.
                if rows.step.batch.is_true(call):
                    raise
            self.conflicts += 1
            if attempt + 1 == GIVE_WAY_AFTER:
                self._losing.add(threading.get_ident())
            time.sleep(self._chance.uniform(0, 0.001 * 2 ** min(attempt, 6)))
        raise StoreUnavailable(
            f"{self._link.name}: gave up after {ATTEMPTS} write conflicts{over}; the store is overloaded"
        )

    def _commit(self, call: Call, rows: RedisWork, now: Now) -> int | str:
        """1, `TOO_SLOW`, or the key of what has changed."""
        decided_for = "" if now[0] else micros(rows.at.wall)
        words = rows.step.batch.words()
        committed: int | str = call("EVALSHA", scripts.COMMIT, self._keys.prefix, decided_for, *words)
        return committed
