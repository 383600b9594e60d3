"""`fencepost retry KEY`: the same again, as a manual fire."""

from __future__ import annotations

import click

from fencepost.cli.following import follow_options, followed, print_outcome, warn_if_unknown
from fencepost.cli.output import say
from fencepost.cli.show import stored_fire
from fencepost.cli.source import CommandSource, stored_job, take_traceparent, takes, whoami
from fencepost.cli.trigger import checked_name
from fencepost.model import FireRecord
from fencepost.scheduler.manual import check_retry
from fencepost.store.base import Store


@click.command()
@takes("KEY")
@click.option("--again", is_flag=True, help="Its effects happen again; needed if KEY has succeeded.")
@click.option("--idempotency-key", "name", help="The same key adds one fire however often it is sent.")
@follow_options
def retry(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    again: bool,
    name: str | None,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Run what the fire KEY ran once more.

    Adds a manual fire with the same arguments and due time, and prints its key. Fenced effects that KEY has committed
    do not happen twice; with --again they do. Final states never change: KEY stays as it is in the ledger. If it has
    not ended, exits 2.
    """
    source = CommandSource.of(words, ("KEY",), url, namespace)
    take_traceparent()
    [text] = source.words

    async def act(store: Store) -> FireRecord:
        fire = await stored_fire(store, text)
        await stored_job(store, fire.job_id)
        check_retry(fire, again)
        await warn_if_unknown(store, fire.job_id)
        handle = await source.scheduler.fire_operations.retry(
            fire.key, again=again, idempotency_key=checked_name(name), by=whoami()
        )
        if not as_json:
            say(handle.key)
        return await followed(handle, wait, timeout, quietly=as_json)

    return print_outcome(source.ask(act), as_json, waited=wait or timeout is not None)
