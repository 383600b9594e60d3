"""A manual fire from its adding to its end: what `trigger` and `retry` share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from fencepost.cli.output import emit, last_line, length, note
from fencepost.cli.progress import Show, view
from fencepost.errors import FencepostError, StoreUnavailable
from fencepost.insight.views.shapes import fire_shape
from fencepost.insight.views.standing import no_live_replica
from fencepost.model import FireRecord, Job, State
from fencepost.scheduler.handle import POLL_EVERY, Handle
from fencepost.store.base import Store

Command = TypeVar("Command", bound=Callable[..., Any])

PATIENCE = 30
"""How often in all a wait puts up with a store that does not answer, a second apart."""
LONGEST_PAUSE = 3
"""Which of the pauses between two polls is the longest: a person is waiting."""


def follow_options(command: Command) -> Command:
    command = click.option("--json", "as_json", is_flag=True, help="The fire as JSON.")(command)
    command = click.option(
        "--timeout", type=click.FloatRange(min=0), help="Wait at most so many seconds; implies --wait."
    )(command)
    return click.option("--wait", is_flag=True, help="Wait for its end; exit 0 if it succeeded, else 1.")(
        command
    )


async def warn_if_unknown(store: Store, job_id: str) -> None:
    """It would wait for ever."""
    roster, records = await store.roster(), await store.jobs([job_id])
    dead = (await store.evidence([replica.id for replica in roster.replicas])).dead | roster.overdue
    live = [replica for replica in roster.replicas if replica.id not in dead]
    if records and not any(records[0].job.lane in replica.targets for replica in live):
        note(f"{_missing(records[0].job)}: the fire waits until one starts")


def _missing(job: Job) -> str:
    return no_live_replica(job.engine, job.pool, f"the task {job.target!r}")


async def followed(handle: Handle, wait: bool, timeout: float | None, quietly: bool = True) -> FireRecord:
    """The fire as it stands, or, if asked to wait, as it ended. On the way its progress is shown, unless `quietly`."""
    if not wait and timeout is None:
        return await handle.do_record()
    try:
        async with asyncio.timeout(timeout):
            with view(quietly) as show:
                return await ended(handle.do_record, show)
    except TimeoutError:
        raise FencepostError(
            f"{handle.key} has not ended within {timeout:g} s; it goes on: `fencepost show '{handle.key}'`"
        ) from None


async def ended(read: Callable[[], Awaitable[FireRecord]], show: Show) -> FireRecord:
    """A store that is away for a while does not end the wait: the fire may go on all the same."""
    failures = polls = 0
    while True:
        try:
            fire = await read()
        except StoreUnavailable:
            failures += 1
            if failures >= PATIENCE:
                raise
            await asyncio.sleep(1)
            continue
        show(fire)
        if fire.state.final:
            return fire
        await asyncio.sleep(POLL_EVERY[min(polls, LONGEST_PAUSE)])
        polls += 1


def print_outcome(fire: FireRecord, as_json: bool, waited: bool) -> int:
    """Print it and say the exit code: by its outcome if that was waited for. Standard output holds the key alone."""
    if as_json:
        emit(fire_shape(fire))
    elif fire.state.final:
        took = f" after {length(fire.finished_at - fire.started_at)}" if _ran(fire) else ""  # type: ignore[operator]
        why = "; ".join(filter(None, [fire.why, last_line(fire.error)]))
        note(
            f"{fire.state}{took}"
            + (f" on {fire.replica}" if fire.replica else "")
            + (f": {why}" if why else "")
        )
    return 1 if waited and fire.state is not State.SUCCEEDED else 0


def _ran(fire: FireRecord) -> bool:
    return fire.started_at is not None and fire.finished_at is not None
