"""`fencepost resume JOB`: end its pause."""

from __future__ import annotations

import click

from fencepost.cli.output import emit, say, when
from fencepost.cli.source import CommandSource, json_option, stored_job, takes, whoami
from fencepost.insight.views.shapes import next_run, time
from fencepost.store.base import Store


@click.command()
@takes("JOB")
@json_option
def resume(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> None:
    """Resume JOB. What fell due in the pause stays skipped. Fine if it was not paused."""
    source = CommandSource.of(words, ("JOB",), url, namespace)
    [job] = source.words

    async def act(store: Store) -> tuple[bool, str | None, str]:
        before, now = await stored_job(store, job), (await store.roster()).now
        record = await source.scheduler.job_operations.change(job, "resume", by=whoami())
        following = next_run(record, now)
        return before.paused_at(now) is not None, time(following), when(following)

    was_paused, next_at, shown = source.ask(act)
    if as_json:
        emit({"job_id": job, "paused": None, "was_paused": was_paused, "next_run_at": next_at})
    else:
        say(
            f"{job} {'is resumed' if was_paused else 'was not paused'}"
            + (f"; next at {shown}" if shown else "")
        )
