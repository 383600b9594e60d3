"""`fencepost fires`: the ledger, newest first."""

from __future__ import annotations

from typing import Any

import click

from fencepost.cli.output import emit, last_line, length, say, table, when
from fencepost.cli.source import Source, json_option, takes
from fencepost.insight.fires import find_fires
from fencepost.model import FireRecord, State
from fencepost.store.base import Store
from fencepost.views.shapes import fire_shape
from fencepost.views.times import ago

COLUMNS = ("fire", "state", "why", "attempt", "started", "took", "replica")


@click.command()
@takes()
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--since", help="Due at or after this ISO time, or so long ago: 2h.")
@click.option("--until", help="Due before this ISO time, or so long ago.")
@click.option("--state", "states", multiple=True, type=click.Choice([state.value for state in State]))
@click.option("--job", help="Only of this job.")
@click.option("--planned", is_flag=True, help="Also fires that are planned and not due yet.")
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
    as_json: bool,
) -> None:
    """List the fires that were due, newest first. Neighbours that never started and share one fate are one."""
    source = Source.of(words, (), url, namespace)
    chosen = tuple(State(state) for state in states)

    async def look(store: Store) -> tuple[FireRecord, ...]:
        now = (await store.roster()).now
        return await find_fires(
            store,
            job=job,
            states=chosen,
            since=ago(since, now, "--since") if since else None,
            until=ago(until, now, "--until") if until else None,
            limit=limit,
            planned=planned,
        )

    found = source.ask(look)
    if as_json:
        emit([fire_shape(fire) for fire in found])
    elif found:
        table(COLUMNS, (_row(fire) for fire in found))
    else:
        say("no such fires")


def _row(fire: FireRecord) -> tuple[Any, ...]:
    through = f"{fire.count} fires through {when(fire.last_due)}" if fire.count > 1 else ""
    took = fire.finished_at - fire.started_at if fire.finished_at and fire.started_at else None
    return (
        fire.key,
        fire.state,
        "; ".join(filter(None, [fire.why, through, last_line(fire.error), fire.by])),
        fire.attempt or "",
        when(fire.started_at),
        length(took) if took is not None else "",
        fire.replica or "",
    )
