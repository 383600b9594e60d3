"""`fencepost preview app:scheduler JOB`: when it will fire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

import click

from fencepost.cli.completing import jobs, targets
from fencepost.cli.output import emit, length, note, table
from fencepost.cli.source import CommandSource, json_option
from fencepost.cli.target import load
from fencepost.clock import SystemClock
from fencepost.errors import FencepostError, UsageError
from fencepost.insight.views.previews import PreviewStep, coming, preview_shape
from fencepost.model import Job, JobEvent
from fencepost.model.triggers import Trigger, from_iso, iso
from fencepost.scheduler.scheduler import Scheduler
from fencepost.settings import did_you_mean
from fencepost.store.base import Store


@click.command()
@click.argument("target", shell_complete=targets)
@click.argument("job", shell_complete=jobs)
@click.option("--from", "since", help="Fires after this ISO time (with an offset or Z); default: now.")
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True)
@json_option
def preview(target: str, job: str, since: str | None, count: int, as_json: bool) -> None:
    """Show the next fires of JOB as TARGET declares it. Nothing is run or stored.

    An `every` without anchor follows the anchor in the store, if the job is stored there.
    """
    scheduler = load(target)
    declared = scheduler.jobs.get(job)
    if declared is None:
        raise UsageError(f"{target} declares no job {job!r}{did_you_mean(job, scheduler.jobs)}")
    if declared.trigger is None:
        raise UsageError(f"job {job!r} has no schedule; it runs when triggered")
    after = _moment(since) if since else SystemClock().wall()
    calendar = _anchored(declared, declared.trigger, scheduler, target, after)
    steps = coming(calendar, after, count)
    if as_json:
        emit([preview_shape(step, declared.jitter) for step in steps])
        return
    zone = ZoneInfo(calendar.local_zone) if calendar.local_zone else None
    leaves_out = any(step.left_out for step in steps)
    columns = ["due at (UTC)", *([f"in {zone.key}"] if zone else []), *([""] if leaves_out else [])]
    jitter = f", each up to {length(declared.jitter)} later by chance" if declared.jitter else ""
    table(columns, _rows(steps, zone, leaves_out), title=f"{calendar.describe()}{jitter}")


def _rows(steps: Sequence[PreviewStep], zone: ZoneInfo | None, leaves_out: bool) -> Iterator[list[str]]:
    def row(moment: datetime, note: str = "") -> list[str]:
        local = [moment.astimezone(zone).isoformat(sep=" ")] if zone else []
        return [iso(moment), *local, *([note] if leaves_out else [])]

    for step in steps:
        for left, number in step.grouped():
            yield row(left.at, f"{left}" + (f", and {number - 1} more" if number > 1 else ""))
        yield row(step.due_at)


def _anchored(job: Job, trigger: Trigger, scheduler: Scheduler, target: str, after: datetime) -> Trigger:
    """Where an interval's grid lies is decided when the store first sees the job."""
    if trigger.resolved(after) == trigger:
        return trigger
    try:
        defined = CommandSource(scheduler, target, ()).ask(lambda store: _defined(store, job.id))
    except FencepostError:
        defined = None
    if defined is not None and trigger.resolved(defined.at).to_json() == defined.trigger:
        return trigger.resolved(defined.at)
    note(f"the grid of {job.id!r} starts when the job is first stored; this is how it would be from now on")
    return trigger.resolved(after)


async def _defined(store: Store, job_id: str) -> JobEvent | None:
    """The last definition of a job that is there."""
    if not await store.jobs([job_id]):
        return None
    defined = [event for event in await store.history(job_id) if event.kind == "defined"]
    return defined[-1] if defined else None


def _moment(text: str) -> datetime:
    try:
        return from_iso(text)
    except ValueError as error:
        raise UsageError(f"--from {text!r}: {error}") from None
