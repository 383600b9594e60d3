"""Dask: an order is a task of a Dask cluster, its ref the key, and a `Variable` of that name holds it.

Without the Variable a task ends with the client that sent it: one that has not started is dropped silently, the result
of one that runs is forgotten. With it, any replica finds the run, and it outlives the replica that sent it. The
scheduler keeps all this in memory: after it restarts it knows nothing, which `poll` reports as `gone`.

Dask runs a task again when it believes that a worker is dead, and workers may steal tasks from each other: the start
gate refuses the second. A task that has come to its end says little, then: either its outcome is on record already, or
it was such a second one. So that is `unsure`, and the heartbeats of the worker decide.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from distributed import Client, KilledWorker, Variable

from fencepost import engine_worker
from fencepost.engines.options import Kinds, checked
from fencepost.errors import ConfigurationError, StoreUnavailable
from fencepost.model import Json
from fencepost.runs.engines import GONE, RUNNING, UNSURE, WAITING, Order, Ref, Sighting, ended

PATIENCE = 5.0
"""Seconds for the scheduler to be there, and to take a task."""
OPTIONS: Kinds = {
    "workers": (str, list),
    "resources": dict,
    "priority": int,
    "allow_other_workers": bool,
}
SIGHTINGS: Mapping[str | None, Sighting] = {
    None: GONE,
    "waiting": WAITING,
    "queued": WAITING,
    "no-worker": WAITING,
    "processing": RUNNING,
}
"""By the scheduler's states. `processing` may still wait at its worker, which makes no difference."""


def carry_out(order: str) -> str:
    """At a worker."""
    return engine_worker.carry_out(Order.from_json(order)).kind


class DaskEngine:
    def __init__(self, address: str | None = None, **client: Any) -> None:
        """`address`: the scheduler's, as `tcp://scheduler:8786`; None: as FENCEPOST_DASK_SCHEDULER says. `client`: what
        else `distributed.Client` takes, as `security=`."""
        found = address or os.environ.get("FENCEPOST_DASK_SCHEDULER")
        if not found:
            raise ConfigurationError(
                'executor="dask": set FENCEPOST_DASK_SCHEDULER=tcp://host:8786, '
                'or give Scheduler(engines={"dask": DaskEngine("tcp://host:8786")})'
            )
        self._address = found
        self._options = client
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    @staticmethod
    def check_options(options: Mapping[str, Json]) -> dict[str, Json]:
        return checked(options, OPTIONS, "Dask")

    async def submit(self, order: Order) -> None:
        """A key that the scheduler knows is not run again."""
        client = await self._connected()
        future = client.submit(carry_out, order.text, key=order.ref, pure=False, retries=0, **order.options)
        await Variable(order.ref, client=client).set(future, timeout=PATIENCE)

    async def poll(self, refs: Sequence[Ref]) -> Mapping[Ref, Sighting]:
        client = await self._connected()
        states = await client.scheduler.get_task_status(keys=list(refs))
        return {
            ref: await self._erred(client, ref) if state == "erred" else SIGHTINGS.get(state, UNSURE)
            for ref, state in states.items()
        }

    async def _erred(self, client: Client, ref: Ref) -> Sighting:
        """The worker failed before the start gate, or died so often that Dask gave up. If the store did not answer it,
        nothing is wrong with the job: the order may be sent again."""
        try:
            error = await (await Variable(ref, client=client).get(timeout=1)).exception()
        except TimeoutError:  # its replica died before the Variable was set
            return UNSURE
        lost = isinstance(error, KilledWorker | StoreUnavailable)
        return GONE if lost else ended(False, f"{type(error).__name__}: {error}")

    async def stop(self, ref: Ref) -> None:
        """A task that waits is dropped. One that runs is in a thread, which Dask cannot end: its worker asks it to."""
        client = await self._connected()
        with suppress(TimeoutError):  # not known
            future = await Variable(ref, client=client).get(timeout=1)
            await client.cancel([future], force=True)

    async def forget(self, ref: Ref) -> None:
        client = await self._connected()
        Variable(ref, client=client).delete()

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close(timeout=1)

    async def _connected(self) -> Client:
        """The client, or a new one after the connection was lost. A scheduler that has restarted knows neither."""
        async with self._connecting:
            if self._client is not None and self._client.status != "running":
                await self.close()
            if self._client is None:
                client = Client(
                    self._address,
                    asynchronous=True,
                    set_as_default=False,
                    timeout=PATIENCE,
                    **self._options,
                )
                try:
                    self._client = await client
                except BaseException:
                    await client.close(timeout=0)
                    raise
            return self._client
