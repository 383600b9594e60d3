"""Operations on fires: trigger, later, retry, cancel. On the control loop; the scheduler, the service and the command
line all use these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from fencepost.errors import ConfigurationError, Conflict, NotFound
from fencepost.model import FireRecord, Json, State, repeating
from fencepost.model.values import clean_text
from fencepost.runs.tasks import checked_args
from fencepost.scheduler.declarations import Declarations
from fencepost.scheduler.handle import Handle
from fencepost.scheduler.job_operations import NOTE_LIMIT
from fencepost.scheduler.lifecycle import Lifecycle
from fencepost.scheduler.manual import NOW, Due, add_manual, caller_trace, check_retry, due_in, new_key
from fencepost.store.base import FireQuery, NewFire


class FireOperations:
    """One per scheduler."""

    def __init__(
        self, declared: Declarations, lifecycle: Lifecycle, trace_source: Callable[[], str | None]
    ) -> None:
        """`trace_source`: the trace context of the code that asks."""
        self._declared = declared
        self._lifecycle = lifecycle
        self._trace_source = trace_source

    async def trigger(
        self,
        what: Callable[..., Any] | str,
        *,
        args: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        if_active: str = "queue",
        by: str = "",
        repeated: FireRecord | None = None,
        again: bool = False,
        due: Due = NOW,
    ) -> Handle:
        new = due.of(self.new_fire(what, args, idempotency_key, if_active, by, repeated, again))
        added = await add_manual(await self._lifecycle.ready_store(), new, self._declared.jobs)
        return self.handle(new, added)

    def handle(self, fire: NewFire, added: FireRecord | None = None) -> Handle:
        """`added`: the row; None: it is asked for in a transaction that may not be committed yet."""
        return Handle(self._lifecycle.ask, self.find, fire.key, fire.job_id, added)

    def new_fire(
        self,
        what: Callable[..., Any] | str,
        args: Mapping[str, Json] | None = None,
        idempotency_key: str | None = None,
        if_active: str = "queue",
        by: str = "",
        repeated: FireRecord | None = None,
        again: bool = False,
    ) -> NewFire:
        """The checked request. `repeated`: the fire that it repeats; `again`, with its effects."""
        if if_active not in ("queue", "refuse"):
            raise ConfigurationError(f'if_active={if_active!r} is not known; use "queue" or "refuse"')
        job_id = self._declared.id_of(what)
        declared = self._declared.jobs.get(job_id)
        if declared is not None:
            task = self._declared.registry.get(declared.target)
            task.check(declared.args if args is None else args, f"a fire of {job_id}")
        key = new_key(job_id, idempotency_key)
        if args is not None:
            args = checked_args(args, f"a fire of {job_id}")
        repeats = None if repeated is None else repeating(repeated, again=again)
        by, trace = clean_text(by, NOTE_LIMIT), caller_trace(self._trace_source, repeated)
        return NewFire(key, job_id, args, if_active, by, repeats, trace)  # type: ignore[arg-type]

    async def later(
        self, what: Callable[..., Any] | str, when: str | float | timedelta | datetime, **asked: Any
    ) -> Handle:
        return await self.trigger(what, due=due_in(when), **asked)

    async def retry(
        self, key: str, *, again: bool = False, idempotency_key: str | None = None, by: str = ""
    ) -> Handle:
        fire = await self.find(key)
        if fire is None:
            raise NotFound(f"there is no fire {key!r} in the ledger")
        check_retry(fire, again)
        return await self.trigger(
            fire.job_id, args=fire.args, idempotency_key=idempotency_key, by=by, repeated=fire, again=again
        )

    async def cancel(self, key: str, by: str = "", dead_token: int | None = None) -> FireRecord:
        """`dead_token`: of the run whose replica a person declares dead (see `Store.cancel_fire`)."""
        store = await self._lifecycle.ready_store()
        fire = await store.cancel_fire(key, clean_text(by, NOTE_LIMIT), dead_token)
        if fire is None:
            raise NotFound(f"there is no fire {key!r} in the ledger")
        if fire.state is State.PENDING and fire.scheduled:
            raise Conflict(f"{key} is not due yet; pause its job to keep it from running")
        return fire

    async def find(self, key: str) -> FireRecord | None:
        found = await (await self._lifecycle.ready_store()).find_fires(FireQuery(key=key))
        return found[0] if found else None
