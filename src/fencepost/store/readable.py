"""What can be read of a store: by the store itself, or by a view of it that leaves something out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from fencepost.model import FireRecord, JobEvent, JobRecord
from fencepost.store.base import Evidence, FireQuery, JobPage, Roster
from fencepost.store.unreadable import UnreadableRows


class Readable(Protocol):
    """Each method as `Store` has it."""

    @property
    def unreadable(self) -> UnreadableRows: ...

    async def roster(self) -> Roster: ...

    async def evidence(self, replicas: Sequence[str]) -> Evidence: ...

    async def jobs(
        self, ids: Sequence[str] | None = None, page: JobPage | None = None
    ) -> tuple[JobRecord, ...]: ...

    async def find_fires(self, query: FireQuery) -> tuple[FireRecord, ...]: ...

    async def history(self, job_id: str) -> tuple[JobEvent, ...]: ...

    async def history_since(self, since: datetime) -> tuple[JobEvent, ...]: ...
