"""A worker's way to the store: directly, or through the service (`service.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fencepost.model import Json, State
from fencepost.runs.engines import Order
from fencepost.runs.fenced import Scope
from fencepost.store.base import Claim, FireQuery, Store, Update
from fencepost.store.rereading import readable_job


class Gate(Protocol):
    """Raises `StoreUnavailable` if there is no answer, which may mean that it was done."""

    @property
    def scope(self) -> Scope: ...

    async def send(self, worker: str, updates: Sequence[Update]) -> Sequence[bool]:
        """Whether each was accepted."""

    async def claim(self, order: Order) -> Claim | None:
        """The run, as it is stored; None: its token is not current."""

    async def kept(self, job_id: str) -> Json: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StoreGate:
    store: Store
    namespace: str

    @property
    def scope(self) -> Scope:
        return Scope(self.namespace, self.store.home)

    async def send(self, worker: str, updates: Sequence[Update]) -> Sequence[bool]:
        return (await self.store.update_claims(worker, updates)).accepted

    async def claim(self, order: Order) -> Claim | None:
        found = await self.store.find_fires(FireQuery(key=order.key))
        fire = next((each for each in found if each.token == order.token), None)
        record = await readable_job(self.store, order.job_id) if fire is not None else None
        if fire is None or record is None or fire.state is not State.RUNNING:
            return None
        return Claim(fire, record.job)

    async def kept(self, job_id: str) -> Json:
        record = await readable_job(self.store, job_id)
        return record.kept if record is not None else None

    async def close(self) -> None:
        await self.store.close()
