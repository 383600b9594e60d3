"""`fencepost cancel KEY`: end a fire that runs or waits."""

from __future__ import annotations

import click

from fencepost.cli.output import emit, say
from fencepost.cli.show import stored_fire
from fencepost.cli.source import Source, json_option, takes, whoami
from fencepost.model import FireRecord, State
from fencepost.store.base import Store
from fencepost.views.shapes import fire_shape


@click.command()
@takes("KEY")
@json_option
def cancel(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> int:
    """Cancel the fire KEY.

    At once if it waits; if it runs, its replica is asked to end it. Exits 1 if it had ended already.
    """
    source = Source.of(words, ("KEY",), url, namespace)
    [text] = source.words

    async def end(store: Store) -> FireRecord:
        found = await stored_fire(store, text)
        return await source.scheduler.do_cancel(found.key, by=whoami())

    fire = source.ask(end)
    key = fire.key
    if as_json:
        emit(fire_shape(fire))
    elif fire.state is State.CANCELLED:
        say(f"{key} is cancelled")
    elif fire.state.final:
        say(f"{key} had ended already: {fire.state}")
    else:
        say(f"{key} is running; its replica {fire.replica} is asked to end it")
    return 1 if fire.state.final and fire.state is not State.CANCELLED else 0
