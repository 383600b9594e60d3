"""`fencepost show KEY`: everything about one fire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

import click

from fencepost.cli.output import emit, facts, last_line, length, narrow, say, table, when
from fencepost.cli.progress import current, phases
from fencepost.cli.source import CommandSource, json_option, takes
from fencepost.cli.views import tz_option
from fencepost.insight.lookup import fire_or_latest
from fencepost.insight.lookup import stored_fire as stored_fire
from fencepost.insight.views.shapes import whole_fire_shape
from fencepost.insight.views.tracebacks import folded, without_repetition
from fencepost.model import FireRecord, Json


@click.command()
@takes("KEY")
@tz_option
@json_option
def show(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> None:
    """Show everything about the fire KEY, or about the latest fire of the job with this id."""
    source = CommandSource.of(words, ("KEY",), url, namespace)
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
            ("progress", _progress(fire)),
            ("checkpoint", None if fire.checkpoint is None or phases(fire) else json.dumps(fire.checkpoint)),
            ("result", None if fire.result is None else json.dumps(fire.result)),
        ]
    )
    _print_phases(fire)
    if fire.attempts:
        _print_attempts(fire)
    if fire.error and "\n" in fire.error.strip():  # one line is in the table already
        say("\n" + folded(fire.error))
    if fire.output:
        say("\noutput" if fire.state.final else "\noutput so far")
        say(indented(without_repetition(fire.output, fire.error)))


def _progress(fire: FireRecord) -> str | None:
    """Of a pipeline: which type of run. Of others: how far it is."""
    reported = fire.progress or {}
    if "pipeline" in reported:
        run = reported["pipeline"]
        return (
            ", ".join(filter(None, [run.get("run_type"), run.get("mode") and f"mode {run['mode']}"])) or None
        )
    rest = {name: value for name, value in reported.items() if name not in ("done", "total", "message")}
    return (
        "; ".join(filter(None, [_far(reported), reported.get("message"), json.dumps(rest) if rest else None]))
        or None
    )


def _far(reported: Mapping[str, Json]) -> str:
    return " of ".join(f"{reported[name]:g}" for name in ("done", "total") if reported.get(name) is not None)


def _print_phases(fire: FireRecord) -> None:
    """A pipeline, phase by phase."""
    rows = [
        (
            passed["name"],
            passed["outcome"],
            length(timedelta(seconds=passed["seconds"])) if passed["seconds"] else "",
            "; ".join(filter(None, [last_line(passed.get("error")), *passed.get("warnings", ())])),
        )
        for passed in phases(fire)
    ]
    reported = fire.progress or {}
    name = current(fire)
    if "pipeline" not in reported:
        return
    if name is not None and not fire.state.final:
        rows.append((name, "running", "", "; ".join(filter(None, [_far(reported), reported.get("message")]))))
    if rows:
        say("")
        table(("phase", "outcome", "took", "notes"), rows)


def _print_attempts(fire: FireRecord) -> None:
    columns = ("token", "started", "took", "outcome", "error", "replica")
    rows = (
        (
            attempt.token,
            when(attempt.started_at),
            length(attempt.finished_at - attempt.started_at),
            attempt.outcome,
            last_line(attempt.error),
            attempt.replica,
        )
        for attempt in fire.attempts
    )
    shown = len(columns) - narrow()  # who ran the last one is among the facts
    say("")
    table(columns[:shown], (row[:shown] for row in rows))


def indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
