"""`fencepost preview app:scheduler JOB`: when it will fire."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import click

from fencepost.cli.completing import jobs, targets
from fencepost.cli.output import emit, note, table
from fencepost.cli.source import Source, json_option
from fencepost.cli.target import load
from fencepost.clock import SystemClock
from fencepost.errors import FencepostError, UsageError
from fencepost.model import Job
from fencepost.model.triggers import Cron, Every, Trigger, from_iso, iso, trigger_from_json
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
    fires = list(islice(calendar.after(after), count))
    if as_json:
        emit([{"due_at": iso(fire)} for fire in fires])
        return
    zone = ZoneInfo(calendar.tz) if isinstance(calendar, Cron) else None
    columns = ["due at (UTC)", *([f"in {zone.key}"] if zone else [])]
    rows = [[iso(fire), *([fire.astimezone(zone).isoformat(sep=" ")] if zone else [])] for fire in fires]
    table(columns, rows, title=calendar.describe())


def _anchored(job: Job, trigger: Trigger, scheduler: Scheduler, target: str, after: datetime) -> Trigger:
    """Where an interval's grid lies is decided when the store first sees the job."""
    if not isinstance(trigger, Every) or trigger.anchor is not None:
        return trigger
    try:
        stored = Source(scheduler, target, ()).ask(lambda store: _stored(store, job.id))
    except FencepostError:
        stored = None
    if isinstance(stored, Every) and stored.anchor and trigger.resolved(stored.anchor) == stored:
        return stored
    note(f"the grid of {job.id!r} starts when the job is first stored; this is how it would be from now on")
    return trigger.resolved(after)


async def _stored(store: Store, job_id: str) -> Trigger | None:
    if not await store.jobs([job_id]):
        return None
    defined = [event.trigger for event in await store.history(job_id) if event.kind == "defined"]
    return trigger_from_json(defined[-1]) if defined and defined[-1] else None


def _moment(text: str) -> datetime:
    try:
        return from_iso(text)
    except ValueError as error:
        raise UsageError(f"--from {text!r}: {error}") from None
