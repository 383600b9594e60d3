"""`fencepost pause JOB`: durable, until resumed or until a time."""

from __future__ import annotations

import click

from fencepost.cli.output import emit, say, when
from fencepost.cli.source import Source, json_option, stored_job, takes, whoami
from fencepost.model import Gap
from fencepost.store.base import Store
from fencepost.views.shapes import pause_shape
from fencepost.views.times import ahead


@click.command()
@takes("JOB")
@click.option("--reason", default="", help="Why, for whoever asks later.")
@click.option("--until", help="Resume by itself at this ISO time, or after so long: 2h.")
@json_option
def pause(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    reason: str,
    until: str | None,
    as_json: bool,
) -> None:
    """Pause JOB: what falls due is recorded as skipped. Runs go on, and it can still be triggered."""
    source = Source.of(words, ("JOB",), url, namespace)
    [job] = source.words

    async def act(store: Store) -> Gap:
        await stored_job(store, job)
        end = ahead(until, (await store.roster()).now, "--until") if until else None
        record = await source.scheduler.do_change(job, "pause", reason, end, by=whoami())
        return record.pauses[-1]

    gap = source.ask(act)
    if as_json:
        emit({"job_id": job, "paused": pause_shape(gap)})
    else:
        say(f"{job} is paused " + (f"until {when(gap.until)}" if gap.until else "until it is resumed"))
