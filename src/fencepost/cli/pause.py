"""`fencepost pause JOB`: durable, until resumed or until a time."""

from __future__ import annotations

import click

from fencepost.cli.output import emit, say, when
from fencepost.cli.source import CommandSource, json_option, stored_job, takes, whoami
from fencepost.insight.views.shapes import pause_shape
from fencepost.insight.views.times import ahead
from fencepost.model import Gap
from fencepost.store.base import Store


@click.command()
@takes("JOB")
@click.option("--reason", default="", help="Why; shown by status and why.")
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
    source = CommandSource.of(words, ("JOB",), url, namespace)
    [job] = source.words

    async def act(store: Store) -> tuple[Gap | None, Gap]:
        now = (await store.roster()).now
        before = (await stored_job(store, job)).paused_at(now)
        end = ahead(until, now, "--until") if until else None
        record = await source.scheduler.job_operations.change(job, "pause", reason, end, by=whoami())
        return before, record.pauses[-1]

    before, gap = source.ask(act)
    if as_json:
        emit({"job_id": job, "paused": pause_shape(gap), "was_paused": before is not None})
        return
    how_long = f"until {when(gap.until)}" if gap.until else "until it is resumed"
    if before is None:
        say(f"{job} is paused {how_long}")
    else:
        why = f': "{gap.note}"' if gap.note else ""
        verb = "stays paused" if before == gap else "is now paused"
        say(f"{job} was already paused since {when(gap.since)}; it {verb} {how_long}{why}")
