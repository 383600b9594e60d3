"""`fencepost limits`: limits across jobs, who uses them and who waits."""

from __future__ import annotations

import click

from fencepost.cli.output import console, emit, say, table_of
from fencepost.cli.source import CommandSource, json_option, takes
from fencepost.cli.views import not_both, shown, watch_option
from fencepost.insight.limits import LimitStanding, limit_shape, read_limits
from fencepost.insight.visible import VisibleStore
from fencepost.store.base import Store


@click.command()
@takes()
@watch_option
@json_option
def limits(
    words: tuple[str, ...], url: str | None, namespace: str | None, watch: bool, as_json: bool
) -> None:
    """Show the limits that jobs share: how much of each is used, by which runs, and which jobs wait."""
    not_both(watch, as_json)
    source = CommandSource.of(words, (), url, namespace)

    async def read(store: Store) -> list[LimitStanding]:
        return await read_limits(VisibleStore(store))

    if as_json:
        emit([limit_shape(each) for each in source.ask(read)])
    else:
        shown(lambda: source.ask(read), _print, watch)


def _print(found: list[LimitStanding]) -> None:
    if not found:
        say('no job has a limit; declare one with limits=[limit("warehouse", 2)]')
        return
    rows = [
        (
            limit.name,
            limit.holds,
            len(limit.running),
            len(limit.members),
            ", ".join(fire.key for fire in limit.running),
            ", ".join(limit.waiting),
        )
        for limit in found
    ]
    console().print(table_of(("limit", "size", "running", "jobs", "used by", "waiting"), rows))
