"""Celery: an order is a message to the task `fencepost.carry_out` of your own Celery application.

Workers know that task once they import this module: `Celery(…, include=["fencepost.engines.celery"])`. What it runs is
another task of the application (`engine={"task": "reports.build"}`), or the function of the job itself, found in
`FENCEPOST_APP`.

Celery delivers a message again when a worker dies, when the broker restarts, and, with Redis, whenever a run takes
longer than the visibility timeout, while the first delivery still runs. And it cannot tell a message that it has lost
from one that waits: an unknown id reads PENDING. So this engine never claims to know: `poll` says `unsure`, a lost
message is sent again under its ref, and the start gate lets one of the deliveries through. How a run that has started
goes on is told by its worker's heartbeats.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from billiard.process import current_process
from celery import Celery, current_app, shared_task
from celery.app.utils import find_app

from fencepost import engine_worker
from fencepost.engines.options import checked
from fencepost.errors import ConfigurationError, UsageError
from fencepost.model import Json
from fencepost.replica.control import has_greenlets
from fencepost.runs.engines import UNSURE, Order, Ref, Sighting
from fencepost.runs.threads import DaemonThreads

TASK = "fencepost.carry_out"
THREADS = 4
"""That send messages: a broker that does not answer holds up no more than these."""
OPTIONS = {"task": str, "queue": str, "routing_key": str, "exchange": str, "priority": int}


@shared_task(name=TASK, acks_late=True, reject_on_worker_lost=True, ignore_result=True, max_retries=0)  # type: ignore[untyped-decorator]
def carry_out(order: str) -> str:
    """At a worker. The message is acknowledged when all is done: if the worker dies before the start gate, another one
    gets it; after the gate the second delivery is refused."""
    if has_greenlets():
        raise UsageError(
            "this Celery worker runs greenlets, and the heartbeats of a run need a thread: start a worker with "
            "-P prefork or -P threads for it, on a queue of its own (engine={'queue': …})"
        )
    parsed = Order.from_json(order)
    return engine_worker.carry_out(parsed, _function(parsed), own_process=_is_pool_process()).kind


class CeleryEngine:
    def __init__(self, app: Celery | str | None = None) -> None:
        """`app`: the Celery application, or where it is (`module:attribute`); None: as FENCEPOST_CELERY_APP says."""
        found = app if app is not None else os.environ.get("FENCEPOST_CELERY_APP")
        if found is None:
            raise ConfigurationError(
                'executor="celery": set FENCEPOST_CELERY_APP=module:app, '
                'or give Scheduler(engines={"celery": CeleryEngine(app)})'
            )
        if isinstance(found, str):
            found = find_app(found)
        if not isinstance(found, Celery):
            raise ConfigurationError(f"{app!r} is a {type(found).__name__}, not a Celery application")
        self._app = found
        self._threads = DaemonThreads("fencepost-celery", THREADS)

    @staticmethod
    def check_options(options: Mapping[str, Json]) -> dict[str, Json]:
        return checked(options, OPTIONS, "Celery")

    async def submit(self, order: Order) -> None:
        """Twice under one ref are two messages; the start gate refuses the second."""
        routing = {name: value for name, value in order.options.items() if name != "task"}
        await self._apart(
            lambda: self._app.send_task(
                TASK, args=[order.text], task_id=order.ref, retry=False, ignore_result=True, **routing
            )
        )

    async def poll(self, refs: Sequence[Ref]) -> Mapping[Ref, Sighting]:
        return dict.fromkeys(refs, UNSURE)

    async def stop(self, ref: Ref) -> None:
        """A message that waits at a worker is dropped. One that runs is ended by its own worker, where that is a pool
        process. Not by `terminate=True`: Celery finds a process by the id of the message, and after a second delivery
        of the same message it finds none, or one that runs something else by now."""
        await self._apart(lambda: self._app.control.revoke(ref))

    async def forget(self, ref: Ref) -> None:
        """Celery keeps nothing: results are ignored."""

    async def _apart(self, work: Callable[[], Any]) -> None:
        """Celery blocks, the control loop must not."""
        await asyncio.wrap_future(self._threads.submit(work))


def _is_pool_process() -> bool:
    """Whether this is a process of a prefork pool, which runs one message at a time; other pools are threads."""
    return bool(current_process().daemon)


def _function(order: Order) -> Callable[..., Any] | None:
    name = order.options.get("task")
    if name is None:
        return None
    task: Callable[..., Any] | None = current_app.tasks.get(name)
    if task is not None:
        return task

    def unknown(**_: Json) -> None:
        raise UsageError(
            f"no task is called {name!r} in the Celery application {current_app.main!r} of this worker; "
            "include its module, or correct engine={'task': …}"
        )

    return unknown
