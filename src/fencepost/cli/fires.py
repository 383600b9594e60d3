"""`fencepost fires`: the ledger, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
from rich.table import Table

from fencepost.cli import completing
from fencepost.cli.output import console, emit, last_line, length, narrow, roughly, say, table_of, when
from fencepost.cli.source import CommandSource, json_option, takes
from fencepost.cli.views import not_both, shown, tz_option, watch_option
from fencepost.insight.fires import find_fires
from fencepost.insight.lookup import short_key
from fencepost.insight.views.shapes import fire_shape
from fencepost.insight.views.times import ago
from fencepost.model import FireRecord, State
from fencepost.store.base import Store

COLUMNS = ("fire", "state", "why", "attempt", "started", "took", "replica")
NARROW_COLUMNS = ("fire", "state", "started", "took", "why")
NARROW_KEY = 30


@click.command()
@takes()
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--since", help="Due at or after this ISO time, or so long ago: 2h.")
@click.option("--until", help="Due before this ISO time, or so long ago.")
@click.option("--state", "states", multiple=True, type=click.Choice([state.value for state in State]))
@click.option("--job", help="Only of this job.", shell_complete=completing.jobs)
@click.option("--planned", is_flag=True, help="Also fires that are planned and not due yet.")
@tz_option
@watch_option
@json_option
def fires(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    limit: int,
    since: str | None,
    until: str | None,
    states: tuple[str, ...],
    job: str | None,
    planned: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """List the fires that were due, newest first. Neighbours that never started and share one fate are one."""
    not_both(watch, as_json)
    source = CommandSource.of(words, (), url, namespace)
    chosen = tuple(State(state) for state in states)

    async def read(store: Store) -> tuple[Sequence[FireRecord], datetime]:
        now = (await store.roster()).now
        found = await find_fires(
            store,
            job=job,
            states=chosen,
            since=ago(since, now, "--since") if since else None,
            until=ago(until, now, "--until") if until else None,
            limit=limit,
            planned=planned,
        )
        return found, now

    if as_json:
        emit([fire_shape(fire) for fire in source.ask(read)[0]])
    else:
        shown(lambda: source.ask(read), lambda found: print_fires(*found), watch)


def print_fires(found: Sequence[FireRecord], now: datetime) -> None:
    if found:
        console().print(fire_table(found, now))
    else:
        say("no such fires")


def fire_table(found: Sequence[FireRecord], now: datetime) -> Table:
    if narrow():
        return table_of(NARROW_COLUMNS, (_narrow_row(fire, now) for fire in found))
    return table_of(COLUMNS, (_row(fire) for fire in found))


def _narrow_row(fire: FireRecord, now: datetime) -> tuple[Any, ...]:
    """For 80 columns. `show` and `why` take the short key, and have the rest."""
    many = f"{fire.count} fires" if fire.count > 1 else ""
    began = fire.started_at or (None if fire.state.final else fire.due_at)
    return (
        short_key(fire, now, NARROW_KEY),
        fire.state,
        roughly(began, now),
        _took(fire),
        "; ".join(filter(None, [last_line(fire.error) or fire.reason, many])),
    )


def _row(fire: FireRecord) -> tuple[Any, ...]:
    return (
        fire.key,
        fire.state,
        "; ".join(filter(None, [fire.why, _through(fire), last_line(fire.error), fire.by])),
        fire.attempt or "",
        when(fire.started_at),
        _took(fire),
        fire.replica or "",
    )


def _through(fire: FireRecord) -> str:
    return f"{fire.count} fires through {when(fire.last_due)}" if fire.count > 1 else ""


def _took(fire: FireRecord) -> str:
    return length(fire.finished_at - fire.started_at) if fire.finished_at and fire.started_at else ""
