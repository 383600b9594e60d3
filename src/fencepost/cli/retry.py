"""`fencepost retry KEY`: the same again, as a manual fire."""

from __future__ import annotations

import click

from fencepost.cli.following import follow_options, followed, told, warn_if_nobody_knows
from fencepost.cli.output import say
from fencepost.cli.show import stored_fire
from fencepost.cli.source import Source, stored_job, takes
from fencepost.errors import AnotherRunIsActive
from fencepost.model import FireRecord
from fencepost.store.base import Store


@click.command()
@takes("KEY")
@follow_options
def retry(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Run what the fire KEY ran once more.

    Adds a manual fire with the same arguments and prints its key. Final states never change: KEY stays as it
    is in the ledger. If it has not ended, exits 2.
    """
    source = Source.of(words, ("KEY",), url, namespace)
    [text] = source.words

    async def again(store: Store) -> FireRecord:
        fire = await stored_fire(store, text)
        key = fire.key
        if not fire.state.final:
            raise AnotherRunIsActive(f"{key} has not ended ({fire.state}); cancel it first, or wait")
        await stored_job(store, fire.job_id)
        await warn_if_nobody_knows(store, fire.job_id)
        handle = await source.scheduler.do_trigger(fire.job_id, args=fire.args, by=f"retry of {key}")
        if not as_json:
            say(handle.key)
        return await followed(handle, wait, timeout, quietly=as_json)

    return told(source.ask(again), as_json, waited=wait or timeout is not None)
