"""How many runs the executors can take. A process claims no more than that: other processes begin the rest.

Jobs of one executor are claimed exactly as far as it has free workers. A scheduler with several executors cannot know
the store which of them is full, so it may be handed a run that cannot begin. It gives that back and claims nothing for
a moment, so that another process can take it. What comes back to it waits here for a free worker, as APScheduler's own
would; after a heartbeat it is offered to the others again.
"""

from __future__ import annotations

import concurrent.futures
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from apscheduler.util import iscoroutinefunction_partial

from fencepost.runs.run import Run

if TYPE_CHECKING:
    from fencepost.apscheduler.registry import Guarded, GuardedJobs

COROUTINES = 100
"""Runs at once on an event loop, which has no limit of its own."""
DEFAULT_THREADS: int = concurrent.futures.ThreadPoolExecutor()._max_workers
"""In which an event loop runs functions, unless it was given another executor."""
STEP_BACK = 0.25
"""Seconds for which a process claims nothing after it has given a run back: the others are faster."""


@dataclass(frozen=True)
class Pool:
    """Workers of one kind."""

    executor: str
    on_loop: bool = False
    """An `AsyncIOExecutor` runs coroutines on its event loop and functions in threads."""


class Pools:
    """All of this is called on the control thread, but for `clear`."""

    def __init__(self, scheduler: Any, registry: GuardedJobs) -> None:
        self._scheduler = scheduler
        self._registry = registry
        self._pools: tuple[int, frozenset[Pool]] = (-1, frozenset())
        """Those that guarded jobs use, as of a number of changes to the registry."""
        self._used: Counter[Pool] = Counter()
        self._place: dict[Run, Pool] = {}
        self._waiting: deque[Run] = deque()
        self._offered: dict[str, float] = {}
        """Fires that were given back, and when."""
        self._claims_from = float("-inf")

    def room(self, now: float) -> int:
        """How many runs may be claimed: a full pool holds up no other."""
        if now < self._claims_from:
            return 0
        return min((free for pool in self._in_use() if (free := self._free(pool)) > 0), default=0)

    def admit(self, run: Run) -> bool:
        """Whether it can begin now; then a worker is taken until `ended`."""
        pool = self._pool_of(self._registry.named(run.task.name))
        if self._free(pool) <= 0:
            return False
        self._used[pool] += 1
        self._place[run] = pool
        return True

    def wait(self, run: Run, seconds: float) -> bool:
        """Whether a run that cannot begin waits here. False: others have not been offered it for so long."""
        now = run.steady()
        if now - self._offered.get(run.key, float("-inf")) < seconds:
            self._waiting.append(run)
            return True
        self._offered = {key: at for key, at in self._offered.items() if now - at < seconds}
        self._offered[run.key] = now
        self._claims_from = now + STEP_BACK
        return False

    def ended(self, run: Run) -> list[Run]:
        """Those that can begin in its place."""
        pool = self._place.pop(run, None)
        if pool is None:
            return []
        self._used[pool] -= 1
        return [
            waiting
            for waiting in list(self._waiting)
            if self._free(self._pool_of(self._registry.named(waiting.task.name))) > 0
            and self.drop(waiting)
            and self.admit(waiting)
        ]

    def drop(self, run: Run) -> bool:
        """Whether it was waiting. It does no more."""
        with suppress(ValueError):
            self._waiting.remove(run)
            return True
        return False

    def clear(self) -> Sequence[Run]:
        """Nothing more is begun. From any thread."""
        return [run for run in list(self._waiting) if self.drop(run)]

    def _free(self, pool: Pool) -> int:
        return _workers(self._scheduler._executors.get(pool.executor), pool.on_loop) - self._used[pool]

    def _in_use(self) -> frozenset[Pool]:
        changes = self._registry.changes
        if changes != self._pools[0]:
            self._pools = changes, frozenset(self._pool_of(each) for each in self._registry.all())
        return self._pools[1]

    def _pool_of(self, guarded: Guarded | None) -> Pool:
        if guarded is None:  # removed while the claim was on its way
            return Pool("default")
        executor = self._scheduler._executors.get(guarded.job.executor)
        on_loop = hasattr(executor, "_eventloop") and iscoroutinefunction_partial(guarded.job.func)
        return Pool(guarded.job.executor, on_loop)


def _workers(executor: Any, on_loop: bool) -> int:
    workers: int | None = getattr(getattr(executor, "_pool", None), "_max_workers", None)
    if workers is not None:
        return workers
    loop = None if on_loop else getattr(executor, "_eventloop", None)
    if loop is None:
        return COROUTINES
    threads: int = getattr(getattr(loop, "_default_executor", None), "_max_workers", DEFAULT_THREADS)
    return threads
