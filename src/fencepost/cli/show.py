"""`fencepost show KEY`: everything about one fire."""

from __future__ import annotations

import json

import click

from fencepost.cli.output import emit, facts, last_line, length, say, table, when
from fencepost.cli.source import Source, json_option, takes
from fencepost.insight.lookup import fire_or_latest
from fencepost.insight.lookup import stored_fire as stored_fire
from fencepost.model import FireRecord
from fencepost.views.shapes import whole_fire_shape


@click.command()
@takes("KEY")
@json_option
def show(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> None:
    """Show everything about the fire KEY, or about the latest fire of the job with this id."""
    source = Source.of(words, ("KEY",), url, namespace)
    fire = source.ask(lambda store: fire_or_latest(store, source.words[0]))
    if as_json:
        emit(whole_fire_shape(fire))
    else:
        print_fire(fire)


def print_fire(fire: FireRecord) -> None:
    facts(
        [
            ("fire", fire.key),
            ("job", fire.job_id),
            ("state", fire.state),
            ("why", fire.why),
            ("due", when(fire.nominal_due_at, exact=True)),
            ("retry of", fire.retry_of),
            ("effects", f"as of {fire.effect_key}" if fire.effect_key != fire.key else None),
            (
                "through",
                f"{when(fire.last_due, exact=True)} ({fire.count} fires)" if fire.count > 1 else None,
            ),
            ("kind", "scheduled" if fire.scheduled else "manual"),
            ("by", fire.by or None),
            ("args", None if fire.args is None else json.dumps(dict(fire.args))),
            ("token", fire.token or None),
            ("attempt", fire.attempt or None),
            ("crashes", fire.crashes or None),
            ("replica", fire.replica),
            ("not before", when(fire.not_before, exact=True) or None),
            ("started", when(fire.started_at, exact=True) or None),
            ("finished", when(fire.finished_at, exact=True) or None),
            ("cancelling", "asked for" if fire.cancel_requested else None),
            ("cancelled by", fire.cancelled_by or None),
            ("progress", None if fire.progress is None else json.dumps(dict(fire.progress))),
            ("checkpoint", None if fire.checkpoint is None else json.dumps(fire.checkpoint)),
            ("result", None if fire.result is None else json.dumps(fire.result)),
        ]
    )
    if fire.attempts:
        table(
            ("token", "started", "took", "outcome", "error", "replica"),
            (
                (
                    attempt.token,
                    when(attempt.started_at, exact=True),
                    length(attempt.finished_at - attempt.started_at),
                    attempt.outcome,
                    last_line(attempt.error),
                    attempt.replica,
                )
                for attempt in fire.attempts
            ),
        )
    if fire.error:
        say(fire.error.rstrip())
    if fire.output:
        say("output" if fire.state.final else "output so far")
        say(indented(fire.output))


def indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
