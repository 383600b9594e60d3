"""`fencepost why JOB [03:00]`: what became of that fire, in a sentence."""

from __future__ import annotations

import re

import click

from fencepost.cli.output import emit, say
from fencepost.cli.source import CommandSource, json_option, takes
from fencepost.cli.views import tz_option
from fencepost.insight.visible import VisibleStore
from fencepost.insight.why import answer, answer_shape


@click.command()
@takes("JOB", "[WHEN]")
@tz_option
@json_option
def why(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> int:
    """Say why JOB ran at WHEN, or did not; without WHEN, what became of its latest fire.

    WHEN is 03:00, 2026-11-15T03:00 or with an offset. Without one it is read in the zone of the job's schedule,
    else in UTC; a time alone is the latest that has been. Exits 1 only if the ledger cannot account for the fire.
    """
    source = CommandSource.of(words, ("JOB", "WHEN") if _has_time(words) else ("JOB",), url, namespace)
    job, when = (*source.words, None)[:2]
    found = source.ask(lambda store: answer(VisibleStore(store), str(job), when, source.settings.retention))
    if as_json:
        emit(answer_shape(found))
    else:
        say(f"{found.subject}\n{found.text}")
    return 1 if found.verdict == "unaccounted" else 0


def _has_time(words: tuple[str, ...]) -> bool:
    """`why JOB WHEN`, and not `why TARGET JOB`."""
    if len(words) != 2:
        return len(words) > 2
    return bool(re.match(r"\d{1,2}:\d\d|\d{4}-", words[1])) or not re.search(r":|\.toml$", words[0])
