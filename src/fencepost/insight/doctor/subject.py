"""The scheduler that is examined, as far as the doctor knows it. It does not join the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fencepost.model import Job, Origin
from fencepost.settings import Settings
from fencepost.store.base import Store


class Subject(Protocol):
    settings: Settings

    @property
    def store(self) -> Store: ...

    @property
    def store_name(self) -> str:
        """Which store, without its secrets."""

    @property
    def jobs(self) -> Mapping[str, Job]:
        """The jobs declared in its code, by id."""

    def origin_of(self, job_id: str) -> Origin | None: ...
