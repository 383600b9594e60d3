"""`fencepost doctor`: what is right, doubtful and wrong with a set-up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from fencepost.cli.output import console, emit, printable, say
from fencepost.cli.source import CommandSource, json_option, takes
from fencepost.clock import SystemClock

if TYPE_CHECKING:
    from fencepost.insight.doctor import Diagnosis, Finding

STYLES = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@takes()
@json_option
def doctor(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> int:
    """Say what is right, doubtful and wrong with a set-up, each with the remedy.

    With TARGET also what a replica that starts with that code would change. It only reads: nothing is written, no
    replica joins, and no store is made. Exits 1 if something is wrong, 78 if no TARGET is given and the namespace holds
    nothing.
    """
    from fencepost.insight.doctor import diagnose
    from fencepost.insight.doctor.shapes import diagnosis_shape

    source = CommandSource.of(words, (), url, namespace)
    found = asyncio.run(diagnose(source.scheduler, source.target, SystemClock()))
    if as_json:
        emit(diagnosis_shape(found))
    else:
        _tell(found)
    return found.exit_code


def _tell(found: Diagnosis) -> None:
    from fencepost.insight.doctor.shapes import verdict

    for section, findings in found.sections.items():
        console().print(Text(section, "bold"))
        lines = Table.grid(padding=(0, 2, 0, 0))
        lines.add_column(no_wrap=True)
        lines.add_column(overflow="fold")
        for finding in findings:
            lines.add_row(Text(f"  {finding.level}", STYLES[finding.level]), _formatted(finding))
        console().print(lines)
    say(verdict(found))


def _formatted(finding: Finding) -> Text:
    text = Text(printable(finding.what))
    if finding.remedy:
        text.append(f"\n→ {printable(finding.remedy)}", "dim")
    return text
