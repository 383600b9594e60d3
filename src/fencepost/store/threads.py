"""One thread for a store that blocks, and the steps that gather while it is busy."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from fencepost.errors import StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

MOST_STEPS = 50
"""Steps in one batch."""


TRIES = 5
"""Of steps whose replies are lost, or that the server undid."""


class ReplyLost(StoreUnavailable):
    """A connection broke, and the same server answers on another: what was sent may have been done or not."""


class Undone(StoreUnavailable):
    """The server undid a transaction for the sake of another. Ours wait for each other in one line; other programs may
    be in the way."""


class WorkerThread:
    """The work of a store runs whole on a thread of its own."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker(), lambda: work(*args, **kwargs))

    def submit(self, work: Callable[[], None]) -> None:
        self._worker().submit(work)

    def end(self) -> None:
        if self._pool is not None and self._pid == os.getpid():
            self._pool.shutdown(wait=False)
        self._pool = None

    def _worker(self) -> ThreadPoolExecutor:
        if self._pool is None or self._pid != os.getpid():  # threads do not cross a fork
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="fencepost-store")
            self._pid = os.getpid()
        return self._pool


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """One operation, waiting for its turn."""

    take: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    writes: bool
    reply: Future[Any] = field(default_factory=Future)


class StepQueue:
    """Whatever has gathered while the last batch was under way shares the next: one commit costs the disk as much as
    another, however much is in it."""

    def __init__(
        self,
        thread: WorkerThread,
        serve: Callable[[list[QueuedStep]], list[Any]],
        repeatable: Sequence[Callable[..., Any]] = (),
    ) -> None:
        """`serve`: takes a batch of steps, all or none of them, and gives their replies. It may add what else has
        gathered to the batch. `repeatable`: operations that are answered again as the first time."""
        self._thread = thread
        self._serve = serve
        self._repeatable = repeatable
        self._waiting: deque[QueuedStep] = deque()
        self.most = MOST_STEPS

    async def ask(self, step: QueuedStep) -> Any:
        self._waiting.append(step)
        self._thread.submit(self._take_batch)
        return await asyncio.wrap_future(step.reply)

    def gathered(self, most: int) -> list[QueuedStep]:
        steps = [self._waiting.popleft() for _ in range(min(len(self._waiting), most))]
        # From here on no caller can cancel them: callers that gave up earlier are left out.
        return [step for step in steps if step.reply.set_running_or_notify_cancel()]

    def clear(self) -> None:
        self._waiting.clear()

    def _take_batch(self) -> None:
        if not (steps := self.gathered(self.most)):
            return
        replies = self._replies(steps)
        for step, reply in zip(steps, replies, strict=True):
            if isinstance(reply, Exception):
                step.reply.set_exception(reply)
            else:
                step.reply.set_result(reply)

    def _replies(self, steps: list[QueuedStep], tries: int = TRIES) -> list[Any]:
        """To each the reply, or the error."""
        try:
            return self._serve(steps)
        except Undone as error:
            return [error] * len(steps) if tries == 1 else self._replies(steps, tries - 1)
        except ReplyLost as error:
            again = [step for step in steps if step.take in self._repeatable]
            if not again or tries == 1:
                return [error] * len(steps)
            # Their replica would ask again in a while. Steps that shared a lost reply would all be late by that.
            others = [step for step in steps if step.take not in self._repeatable]
            replies = self._replies(again, tries - 1)
            steps[:] = [*again, *others]  # with what was added to the batch
            return [*replies, *[error] * len(others)]
        except StoreUnavailable as error:
            return [error] * len(steps)
        except Exception as error:
            if len(steps) == 1:
                return [error]
            # Nothing was committed: let only the culprit fail.
            return [reply for step in list(steps) for reply in self._replies([step])]
