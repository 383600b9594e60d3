"""The worker's side of an engine: carries out one order, at most once, and reports as a local run does.

What a worker process gets is an order (`runs/engines/base.py`), as JSON. What it does with it:

1. The start gate: a compare-and-set on the token, in the store (`FENCEPOST_STORE`), or through the service for workers
   without a route to it (`FENCEPOST_SERVICE` and `FENCEPOST_AUTH_TOKEN`; `POST /api/v1/fires/{key}/start`). A second
   delivery, an order that was replaced or cancelled: refused, nothing runs.
2. The body, with a `Fire` as everywhere: heartbeats, progress, checkpoints, output, `fire.fenced`, cancel, timeout.
3. The outcome, settled under the token, until the store has answered.

An adapter's task or pod calls `carry_out(order)`, or runs `python -m fencepost.engine_worker` with the order in
`FENCEPOST_ORDER`. The function is found by the order's target in `FENCEPOST_APP` (`module:scheduler`), unless given.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import secrets
import signal
import socket
from collections.abc import Callable
from typing import Any

from fencepost.cli.target import load
from fencepost.clock import SystemClock
from fencepost.engine_worker.attend import ASK_FOR, Attendant, Verdict
from fencepost.engine_worker.gate import Gate, StoreGate
from fencepost.errors import ConfigurationError, StoreUnavailable
from fencepost.replica.control import ControlThread
from fencepost.runs.bodies.process import KILL_AFTER
from fencepost.runs.engines import Order
from fencepost.runs.host import ThreadedHost
from fencepost.runs.output import keep_logs
from fencepost.runs.run import Run
from fencepost.runs.tasks import Task
from fencepost.settings import Settings
from fencepost.store.urls import store_from_url

__all__ = ["Verdict", "carry_out"]

log = logging.getLogger("fencepost")

TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that ended because its body did not."""

FindTask = Callable[[Order], Task]


def carry_out(
    order: Any, function: Callable[..., Any] | None = None, *, own_process: bool = False
) -> Verdict:
    """Carry out one order: an `Order`, or its JSON. Blocks until its outcome is reported, and never raises what the
    body raised. `function`: what to call; None: the task of the order's name in `FENCEPOST_APP`. `own_process`: this
    process runs nothing beside it, so a body that does not end when it is cancelled is ended with the process."""
    given = order if isinstance(order, Order) else Order.from_json(order)
    keep_logs()
    control = ControlThread("fencepost-engine-worker")
    try:
        return asyncio.run(_carried_out(given, control, _finder(function), own_process))
    finally:
        control.stop()


async def _carried_out(order: Order, control: ControlThread, find: FindTask, own_process: bool) -> Verdict:
    """Coroutines run here, functions in a thread; the control thread does the rest."""
    host = WorkerHost(asyncio.get_running_loop(), own_process)
    try:
        return await asyncio.wrap_future(control.submit(_attended(order, host, find)))
    finally:
        host.close()


async def _attended(order: Order, host: WorkerHost, find: FindTask) -> Verdict:
    gate = await _opened_gate(order)
    try:
        attendant = Attendant(order, gate, host, SystemClock(), worker_name(), random.Random())
        return await attendant.attend(find)
    finally:
        await gate.close()


async def _opened_gate(order: Order) -> Gate:
    """As at the gate itself: a store that does not answer now may answer soon."""
    for _ in range(2 * ASK_FOR - 1):
        try:
            return await open_gate(order)
        except StoreUnavailable as error:
            log.warning("%s: the store does not answer yet (%s)", order.key, error)
            await asyncio.sleep(order.heartbeat / 2)
    return await open_gate(order)


class WorkerHost(ThreadedHost):
    """A function that cannot be cancelled is waited for: its run ends when it does, or when this process ends, and
    holds its place until then."""

    def __init__(self, loop: asyncio.AbstractEventLoop, own_process: bool) -> None:
        super().__init__(loop, 1)
        self._own_process = own_process

    def cancel(self, run: Run) -> None:
        if run.body is not None or run.task.is_async:
            super().cancel(run)
        if self._own_process:
            # As with `executor="process"`: where its token is gone, another attempt may be running.
            seconds = 0.0 if run.cause == "fenced" else KILL_AFTER
            asyncio.get_running_loop().call_later(seconds, _end_process_of, run)


def _end_process_of(run: Run) -> None:
    """No outcome is written: the replica that looks after the run sees its end, as it would that of a killed worker."""
    if not run.is_over:
        log.warning("%s goes on although it was cancelled (%s): this process ends", run.key, run.cause)
        logging.shutdown()
        os._exit(TERMINATED)


def worker_name() -> str:
    """Unique per delivery."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", os.environ.get("POD_NAME") or socket.gethostname())[:100]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


async def open_gate(order: Order) -> Gate:
    if service := os.environ.get("FENCEPOST_SERVICE"):
        from fencepost.engine_worker.service import ServiceGate

        return ServiceGate(service, os.environ.get("FENCEPOST_AUTH_TOKEN"), order)
    settings = Settings.load(namespace=order.namespace)
    url = settings.store or (load(app).settings.store if (app := os.environ.get("FENCEPOST_APP")) else None)
    if url is None:
        raise ConfigurationError(
            "this worker does not know the store: set FENCEPOST_STORE to the URL that the replicas use, or "
            "FENCEPOST_SERVICE to that of `fencepost serve`"
        )
    store = store_from_url(url, order.namespace)
    store.creates = False
    try:
        await store.open()
    except BaseException:
        await store.close()
        raise
    return StoreGate(store, order.namespace)


def _finder(function: Callable[..., Any] | None) -> FindTask:
    if function is not None:
        return lambda order: Task.of(function, order.target)
    return _from_app


def _from_app(order: Order) -> Task:
    app = os.environ.get("FENCEPOST_APP")
    if not app:
        raise ConfigurationError(
            f"this worker does not know the task {order.target!r}: set FENCEPOST_APP to module:scheduler"
        )
    return load(app).registry.get(order.target)
