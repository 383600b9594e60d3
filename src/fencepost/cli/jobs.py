"""`fencepost jobs`: list them, show one, remove one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

import click

from fencepost.cli.diff_jobs import diff_jobs
from fencepost.cli.edit_jobs import add_job, edit_job
from fencepost.cli.output import emit, facts, note, say, table, when
from fencepost.cli.source import CommandSource, json_option, no_such_job, stored_job, takes, whoami
from fencepost.cli.status import job_table
from fencepost.cli.views import tz_option
from fencepost.errors import ConfigurationError
from fencepost.insight.views.overview import overview
from fencepost.insight.views.shapes import Shape, definition_shape, event_shape, time
from fencepost.insight.views.standing import job_state, runs_on
from fencepost.model import JobEvent, JobRecord, Json
from fencepost.model.job_fields import shown_fields
from fencepost.model.selection import parsed
from fencepost.model.triggers import from_iso, trigger_from_json
from fencepost.store.base import Store


class ListByDefault(click.Group):
    """`jobs` alone, or with a target, is `jobs list`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in context.help_option_names):
            args = ["list", *args]
        return super().parse_args(context, args)


@click.group(cls=ListByDefault, subcommand_metavar="[list|show|add|edit|rm|diff] [TARGET] [ID]")
def jobs() -> None:
    """List the jobs; show, add, change or remove one; compare them with the code."""


@jobs.command("list")
@takes()
@click.option(
    "--only",
    "choices",
    multiple=True,
    metavar="CHOICE",
    help="Only jobs with tag:NAME, of owner:NAME, with priority:5 (or 5.. for 5 and above), or named as 'report*'. "
    "Several narrow it down.",
)
@tz_option
@json_option
def list_jobs(
    words: tuple[str, ...], url: str | None, namespace: str | None, choices: tuple[str, ...], as_json: bool
) -> None:
    """List the jobs: state, schedule, last outcome, next fire."""
    source = CommandSource.of(words, (), url, namespace)
    for choice in choices:
        parsed(choice)
    found, now = source.ask(lambda store: overview(store, source.scheduler.store_name, choices))
    if choices and not found["jobs"] and not as_json:
        say(f"no job fits {' and '.join(choices)}")
    elif as_json:
        emit(found["jobs"])
    else:
        job_table(found["jobs"], now)


@jobs.command("show")
@takes("ID")
@tz_option
@json_option
def show_job(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> None:
    """Show the definition of job ID, and its history."""
    source = CommandSource.of(words, ("ID",), url, namespace)
    [id] = source.words

    async def read(store: Store) -> tuple[JobRecord, Sequence[JobEvent], Shape, datetime]:
        record = await stored_job(store, id)
        found, now = await overview(store, source.scheduler.store_name)
        state: Shape = next((job for job in found["jobs"] if job["id"] == id), {})
        return record, await store.history(id), state, now

    record, history, state, _ = source.ask(read)
    shape = {**definition_shape(record), **state, "history": [event_shape(event) for event in history]}
    if as_json:
        emit(shape)
        return
    facts(_facts(record, shape))
    say("")
    table(("at", "what", "until", "by", "note"), (_event_row(event) for event in history))


@jobs.command("rm")
@takes("ID")
@json_option
def remove_job(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> None:
    """Remove job ID.

    What is due or waiting is cancelled, what runs goes on. Its history stays. A job that cannot be read is removed all
    the same: its tokens go on where they were, and no fire of it is run again.
    """
    source = CommandSource.of(words, ("ID",), url, namespace)
    [id] = source.words

    async def remove(store: Store) -> tuple[JobRecord, bool]:
        if not await store.jobs([id]) and not store.unreadable.holding(id):
            raise await no_such_job(store, id)
        replicas = (await store.roster()).replicas
        removed = await source.scheduler.job_operations.change(id, "remove", by=whoami())
        return removed, any(removed.job.lane in replica.targets for replica in replicas)

    record, known = source.ask(remove)
    if as_json:
        emit({"job_id": id, "removed_at": time(record.removed_at)})
    else:
        say(f"{id} is removed")
    if known:
        note("a replica declares it in code: unless that is taken out too, it comes back at the next start")


for command in (add_job, edit_job, diff_jobs):
    jobs.add_command(command)


def _facts(record: JobRecord, shape: Shape) -> list[tuple[str, object]]:
    job = record.job
    return [
        ("job", record.id),
        ("task", job.target),
        ("source", _source(record)),
        ("command", record.origin.command if record.origin else None),
        ("state", job_state(shape)),
        ("schedule", shape["schedule"] or "when triggered"),
        ("next", when(from_iso(shape["next_run_at"])) if shape["next_run_at"] else None),
        ("args", json.dumps(dict(job.args)) if job.args else None),
        ("overlap", job.overlap),
        ("limits", ", ".join(map(str, job.limits)) or None),
        ("misfire", f"{job.misfire}, after {job.misfire_after.total_seconds():g} s"),
        ("retry", json.dumps(shape["retry"]) if shape["retry"] else None),
        ("timeout", f"{job.timeout.total_seconds():g} s" if job.timeout else None),
        ("after crash", job.after_crash),
        ("runs on", runs_on(job)),
        *((name, _text(value)) for name, value in shown_fields(job).items()),
        ("created", when(record.created_at)),
        ("changed", when(record.changed_at)),
    ]


def _text(value: Json) -> str | None:
    """None, which is not shown, of what was not given."""
    return (", ".join(map(str, value)) if isinstance(value, list) else str(value or "")) or None


def _source(record: JobRecord) -> str:
    source = "made by hand" if record.source == "api" else "code"
    joined = ", in place of the code in " if record.source == "api" else " in "
    return source if record.origin is None else f"{source}{joined}{record.origin}"


def _event_row(event: JobEvent) -> tuple[object, ...]:
    what = f"{event.kind}: {_schedule(event.trigger)}" if event.trigger else event.kind
    return when(event.at), what, when(event.until), event.by, event.note


def _schedule(trigger: Mapping[str, Json]) -> str:
    try:
        return trigger_from_json(dict(trigger)).describe()
    except (
        ConfigurationError,
        KeyError,
        ValueError,
    ):  # of another version, or in a zone that is not known here
        return json.dumps(dict(trigger))
