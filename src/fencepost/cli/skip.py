"""`fencepost skip JOB --at …`: leave out one coming fire."""

from __future__ import annotations

import click

from fencepost.cli.output import emit, say, when
from fencepost.cli.source import CommandSource, json_option, stored_job, takes, whoami
from fencepost.cli.views import tz_option
from fencepost.insight.views.backfills import skip_shape
from fencepost.insight.views.times import coming
from fencepost.insight.views.words import shown_in
from fencepost.model import JobRecord
from fencepost.store.base import Store


@click.command()
@takes("JOB")
@click.option("--at", "moment", help="Its due time: 18:00, or an ISO time; default: the next one.")
@click.option("--reason", default="", help="Why; shown in the ledger.")
@click.option("--undo", is_flag=True, help="Let it run after all, as long as it lies ahead.")
@tz_option
@json_option
def skip(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    moment: str | None,
    reason: str,
    undo: bool,
    as_json: bool,
) -> None:
    """Do not run one coming fire of JOB: it is recorded as skipped, with the reason.

    Times without an offset are read in the zone of --tz.
    """
    source = CommandSource.of(words, ("JOB",), url, namespace)
    [job] = source.words

    async def act(store: Store) -> tuple[JobRecord, str]:
        record, now = await stored_job(store, job), (await store.roster()).now
        if moment is not None:
            due_at = coming(moment, now, shown_in.get(), "--at")
        elif undo:
            due_at = record.skips[0].due_at if record.skips else now
        else:
            due_at = record.next_run_after(now) or now
        changed = await source.scheduler.job_operations.skip(
            job, due_at, undo=undo, reason=reason, by=whoami()
        )
        return changed, when(due_at)

    record, due = source.ask(act)
    if as_json:
        emit({"job_id": job, "skips": [skip_shape(each) for each in record.skips]})
    else:
        say(f"{job} at {due} {'will run' if undo else 'will be skipped'}")
