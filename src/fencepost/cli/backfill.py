"""`fencepost backfill JOB --from … --to …`: run the past due times of its calendar; and how that goes on."""

from __future__ import annotations

from collections.abc import Sequence

import click

from fencepost.cli.output import emit, facts, say, table, when
from fencepost.cli.source import CommandSource, json_option, stored_job, takes, whoami
from fencepost.cli.views import tz_option
from fencepost.insight.views.backfills import backfill_shape
from fencepost.insight.views.shapes import Shape
from fencepost.insight.views.times import past
from fencepost.insight.views.words import shown_in
from fencepost.model.triggers import from_iso
from fencepost.scheduler.backfilling import Range, backfill_of
from fencepost.store.base import Store


class StartByDefault(click.Group):
    """`backfill JOB …` is `backfill start JOB …`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in context.help_option_names:
            args = ["start", *args]
        return super().parse_args(context, args)


@click.group(cls=StartByDefault, subcommand_metavar="[start|list|show|pause|resume|cancel] [TARGET] JOB")
def backfill() -> None:
    """Run the past due times of a job's calendar."""


@backfill.command("start")
@takes("JOB")
@click.option(
    "--from", "since", required=True, help="The first due time: 2026-11-01, an ISO time, or 7d ago."
)
@click.option("--to", "until", default="0s", help="Before this time; default: now.")
@click.option("--only-missing", is_flag=True, help="Pass over what the ledger has as succeeded.")
@click.option("--limit", type=int, default=1, show_default=True, help="How many may run at once.")
@click.option("--reverse", is_flag=True, help="The newest first.")
@click.option("--name", help="The same name is one backfill however often it is asked for.")
@tz_option
@json_option
def start(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    since: str,
    until: str,
    only_missing: bool,
    limit: int,
    reverse: bool,
    name: str | None,
    as_json: bool,
) -> None:
    """Run the fires of JOB with FROM <= due < TO, each under a key of its own. Prints the name of the backfill.

    Times without an offset are read in the zone of --tz. What is scheduled goes on, and comes first.
    """
    source = CommandSource.of(words, ("JOB",), url, namespace)
    [job] = source.words

    async def act(store: Store) -> Shape:
        await stored_job(store, job)
        now, zone = (await store.roster()).now, shown_in.get()
        begin, end = past(since, now, zone, "--from"), past(until, now, zone, "--to")
        asked = Range(begin, end, limit, reverse, only_missing, name)
        return backfill_shape(job, await source.scheduler.job_operations.backfill(job, asked, by=whoami()))

    shape = source.ask(act)
    if as_json:
        emit(shape)
        return
    say(shape["name"])
    say(f"{shape['total']} due times of {job}; see: fencepost backfill show {job} {shape['name']}")


@backfill.command("list")
@takes()
@tz_option
@json_option
def list_all(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> None:
    """List the backfills of all jobs, the latest first."""
    source = CommandSource.of(words, (), url, namespace)

    async def read(store: Store) -> list[Shape]:
        found = [backfill_shape(job.id, each) for job in await store.jobs() for each in job.backfills]
        return sorted(found, key=lambda shape: shape["created_at"] or "", reverse=True)

    shapes = source.ask(read)
    if as_json:
        emit(shapes)
        return
    table(["job", "name", "state", "ended", "of", "from", "to", "by"], [_row(shape) for shape in shapes])


@backfill.command("show")
@takes("JOB", "NAME")
@tz_option
@json_option
def show(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> None:
    """Show how far backfill NAME of JOB has come."""
    source = CommandSource.of(words, ("JOB", "NAME"), url, namespace)
    job, name = source.words

    async def read(store: Store) -> Shape:
        return backfill_shape(job, backfill_of(await stored_job(store, job), name))

    _print(source.ask(read), as_json)


def _acting(what: str, help: str) -> None:
    @backfill.command(what, help=help)
    @takes("JOB", "NAME")
    @json_option
    def act(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> None:
        source = CommandSource.of(words, ("JOB", "NAME"), url, namespace)
        job, name = source.words

        async def change(store: Store) -> Shape:
            backfill_of(await stored_job(store, job), name)
            done = await source.scheduler.job_operations.change_backfill(job, name, what, by=whoami())
            return backfill_shape(job, done)

        _print(source.ask(change), as_json)


_acting("pause", "Start no more of its fires until it is resumed; what runs goes on.")
_acting("resume", "Go on with it.")
_acting("cancel", "End it: what waits is cancelled, what runs is asked to end.")


def _print(shape: Shape, as_json: bool) -> None:
    if as_json:
        emit(shape)
        return
    ended = ", ".join(f"{number} {state}" for state, number in shape["ended"].items()) or "none"
    facts(
        [
            ("backfill", f"{shape['name']} of {shape['job_id']}"),
            ("state", f"{shape['state']}: {shape['note']}" if shape["note"] else shape["state"]),
            ("range", f"{_time(shape['since'])} to {_time(shape['until'])}"),
            ("due times", str(shape["total"])),
            ("ended", ended),
            ("needed no run", str(shape["passed"])),
            ("left", str(shape["left"])),
            ("at once", str(shape["limit"])),
            ("asked by", shape["by"] or "?"),
            ("finished", _time(shape["finished_at"]) if shape["finished_at"] else ""),
        ]
    )


def _row(shape: Shape) -> Sequence[str]:
    ended = sum(shape["ended"].values()) + shape["passed"]
    times = _time(shape["since"]), _time(shape["until"])
    return [
        shape["job_id"],
        shape["name"],
        shape["state"],
        str(ended),
        str(shape["total"]),
        *times,
        shape["by"],
    ]


def _time(text: str) -> str:
    return when(from_iso(text))
