"""How things are shown: tables, times in words, JSON. Text from jobs and people is never taken as markup."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fencepost.insight.views.words import distance as distance
from fencepost.insight.views.words import last_line as last_line
from fencepost.insight.views.words import length as length
from fencepost.insight.views.words import roughly as roughly
from fencepost.insight.views.words import when as when

PIPE_WIDTH = 200
"""Columns where there is no terminal: keys must come out whole."""
WIDE = 120
"""Columns from which on tables show everything."""
NARROWEST = 8
"""Characters to which a column may be squeezed."""

STYLES = {
    "succeeded": "green",
    "alive": "green",
    "running": "cyan",
    "failed": "red",
    "lost": "red",
    "dead": "red",
    "missed": "yellow",
    "skipped": "yellow",
    "paused": "yellow",
    "orphaned": "yellow",
    "conflict": "red",
    "by hand": "yellow",
    "overdue": "yellow",
    "draining": "yellow",
    "cancelled": "magenta",
}


def emit(value: Any) -> None:
    """Data as JSON."""
    click.echo(json.dumps(value, indent=2))


def say(text: str) -> None:
    click.echo(printable(text))


def note(text: str) -> None:
    """What a person should know but no program should read."""
    click.echo(printable(text), err=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    console().print(table_of(columns, rows, title))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    made = Table(
        *columns,
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for number, column in enumerate(made.columns):
        column.no_wrap = number == 0  # names and keys are there to be copied
        column.overflow = "fold"
    for row in rows:
        made.add_row(*map(_cell, row))
    for column in made.columns:  # what is squeezed stays readable
        natural = max((cell.cell_len for cell in column.cells if isinstance(cell, Text)), default=0)
        column.min_width = min(NARROWEST, max(natural, len(str(column.header))))
    return made


def narrow() -> bool:
    """Whether to leave out what can be had elsewhere: whole keys, exact times, lesser columns."""
    return console().width < WIDE


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Names and values, one per line; values that are None are left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            grid.add_row(Text(name, "dim"), _cell(value))
    console().print(grid)


def console() -> Console:
    """Made when needed: it follows NO_COLOR, COLUMNS and wherever standard output leads at that moment."""
    wide = not sys.stdout.isatty() and not os.environ.get("COLUMNS")
    return Console(markup=False, highlight=False, emoji=False, width=PIPE_WIDTH if wide else None)


def printable(text: str) -> str:
    """Without what would steer a terminal: errors and notes come from anywhere."""
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)


def _cell(value: Any) -> Text:
    if isinstance(value, Text):
        return value
    text = printable("" if value is None else str(value))
    return Text(text, STYLES.get(text.split(" ")[0].rstrip(":,"), ""))
