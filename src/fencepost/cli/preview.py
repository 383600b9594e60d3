"""`fencepost preview app:scheduler JOB`: when it will fire."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import click
from rich.console import Console
from rich.table import Table

from fencepost.cli.target import load
from fencepost.clock import SystemClock
from fencepost.errors import UsageError
from fencepost.settings import did_you_mean
from fencepost.triggers import Cron, from_iso, iso


@click.command()
@click.argument("target")
@click.argument("job")
@click.option("--from", "since", help="Fires after this ISO time (with an offset or Z); default: now.")
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def preview(target: str, job: str, since: str | None, count: int, as_json: bool) -> None:
    """Show the next fires of JOB as TARGET declares it. Nothing is run or stored."""
    scheduler = load(target)
    declared = scheduler.jobs.get(job)
    if declared is None:
        raise UsageError(f"{target} declares no job {job!r}{did_you_mean(job, scheduler.jobs)}")
    if declared.trigger is None:
        raise UsageError(f"job {job!r} has no schedule; it runs when triggered")
    after = _moment(since) if since else SystemClock().wall()
    fires = list(islice(declared.trigger.resolved(after).after(after), count))
    if as_json:
        click.echo(json.dumps([{"due_at": iso(fire)} for fire in fires]))
        return
    zone = ZoneInfo(declared.trigger.tz) if isinstance(declared.trigger, Cron) else None
    table = Table("due at (UTC)", *([f"in {zone.key}"] if zone else []), title=declared.trigger.describe())
    for fire in fires:
        table.add_row(iso(fire), *([fire.astimezone(zone).isoformat(sep=" ")] if zone else []))
    Console().print(table)


def _moment(text: str) -> datetime:
    try:
        return from_iso(text)
    except ValueError as error:
        raise UsageError(f"--from {text!r}: {error}") from None
