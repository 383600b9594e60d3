"""Operations on jobs: add, change, remove, pause, resume, backfill, skip. On the control loop; the scheduler, the
service and the command line all use these."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from fencepost.errors import ConfigurationError, NotFound, UsageError
from fencepost.model import Backfill, JobRecord, checked_id
from fencepost.model.values import clean_text
from fencepost.scheduler.backfilling import Range, change_backfill, change_skip, start_backfill, stored_job
from fencepost.scheduler.declarations import Declarations
from fencepost.scheduler.declare import as_trigger
from fencepost.scheduler.editing import write
from fencepost.scheduler.lifecycle import Lifecycle
from fencepost.scheduler.manual import aware
from fencepost.settings import Settings, did_you_mean
from fencepost.store.base import ChangeJob, PutJob, Store

NOTE_LIMIT = 500
"""Characters kept of a pause's reason, and of the name of the caller."""


class JobOperations:
    """One per scheduler."""

    def __init__(
        self, declared: Declarations, lifecycle: Lifecycle, settings: Callable[[], Settings]
    ) -> None:
        self._declared = declared
        self._lifecycle = lifecycle
        self._settings = settings

    async def add(
        self,
        what: Callable[..., Any] | str,
        trigger: Any,
        *,
        id: str,
        replace: bool = False,
        by: str = "",
        **policies: Any,
    ) -> None:
        registry = self._declared.registry
        task = registry.find(what) if callable(what) else registry.get(what)
        if task is None:
            raise UsageError(f"{what!r} is not a task of this scheduler; decorate it with @scheduler.task")
        job = self._declared.job(task, checked_id(id, "job id"), trigger, policies)
        store = await self._lifecycle.ready_store()
        new = PutJob(job, self._settings().revision, clean_text(by, NOTE_LIMIT), replace, source="api")
        [put] = await store.put_jobs([new])
        if put.outcome == "exists":
            raise UsageError(f"job {id!r} is there already and differs; pass replace=True")
        if put.refused:
            raise UsageError(
                f"job {id!r} was not replaced: {put.outcome}, a live replica has a newer definition"
            )

    async def edit(
        self,
        what: Callable[..., Any] | str,
        trigger: Any = None,
        *,
        version: str | None = None,
        by: str = "",
        **policies: Any,
    ) -> None:
        store, id = await self._lifecycle.ready_store(), self._declared.id_of(what)
        words = policies if trigger is None else {**policies, "trigger": as_trigger(trigger)}
        edit = await self._declared.editor.prepare(store, id, words, whole=False)
        await write(store, edit, clean_text(by, NOTE_LIMIT), version, self._settings().revision)

    async def change(
        self,
        what: Callable[..., Any] | str,
        kind: str,
        reason: str = "",
        until: datetime | None = None,
        by: str = "",
    ) -> JobRecord:
        """`kind`: pause, resume or remove."""
        if until is not None and until.tzinfo is None:
            raise ConfigurationError(f"until={until} has no time zone; give it one (tzinfo=…)")
        store, job_id = await self._lifecycle.ready_store(), self._declared.id_of(what)
        reason, by = clean_text(reason, NOTE_LIMIT), clean_text(by, NOTE_LIMIT)
        record = await store.change_job(ChangeJob(job_id, kind, reason, by, until))  # type: ignore[arg-type]
        if record is None:
            raise NotFound(
                f"there is no job {job_id!r} in the store", did_you_mean(job_id, self._declared.jobs)
            )
        return record

    async def backfill(self, what: Callable[..., Any] | str, asked: Range, by: str = "") -> Backfill:
        store = await self._lifecycle.ready_store()
        record = await self._stored(store, self._declared.id_of(what))
        by, retention = clean_text(by, NOTE_LIMIT), self._settings().retention
        return await start_backfill(store, record, asked, retention, by)

    async def change_backfill(self, job_id: str, name: str, what: str, by: str = "") -> Backfill:
        """`what`: pause, resume or cancel."""
        store = await self._lifecycle.ready_store()
        return await change_backfill(store, job_id, name, what, clean_text(by, NOTE_LIMIT))

    async def skip(
        self,
        what: Callable[..., Any] | str,
        due_at: datetime,
        *,
        undo: bool = False,
        reason: str = "",
        by: str = "",
    ) -> JobRecord:
        store = await self._lifecycle.ready_store()
        record = await self._stored(store, self._declared.id_of(what))
        reason, by = clean_text(reason, NOTE_LIMIT), clean_text(by, NOTE_LIMIT)
        return await change_skip(store, record.id, aware(due_at, "due_at"), undo, reason, by)

    async def _stored(self, store: Store, job_id: str) -> JobRecord:
        return await stored_job(store, job_id, self._declared.jobs)
