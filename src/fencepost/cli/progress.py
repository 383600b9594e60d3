"""A run as it goes on: a bar for each phase on a terminal, a line for each elsewhere. On standard error."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fencepost.cli.output import note, printable
from fencepost.model import FireRecord, State
from fencepost.pipeline.progress import BEFORE_THE_FIRST
from fencepost.runs.masking import mask_for
from fencepost.web.logs import Formatter

Show = Callable[[FireRecord], None]

RUNNING = "▸"
MARKS = {"done": "✓", "reused": "=", "skipped": "-", "failed": "✗"}


@contextmanager
def view(quietly: bool) -> Iterator[Show]:
    """What to show of the fire, called again and again until it has ended."""
    if quietly:
        yield lambda fire: None
    elif sys.stderr.isatty():
        with Bars(stderr_console()) as bars:
            yield bars.show
    else:
        yield ProgressLines().show


def log_to_stderr() -> None:
    """Where bars are drawn, above them."""
    handler: logging.Handler = logging.StreamHandler()
    formatter = Formatter("text", mask_for(os.environ))
    if sys.stderr.isatty():
        handler = RichHandler(console=stderr_console(), show_path=False)
        formatter = Formatter("text", mask_for(os.environ), "%(message)s")
    formatter.tracebacks = True  # who runs it here wants to see it here
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def stderr_console() -> Console:
    """One for bars and logs, so that they do not write over each other."""
    global _console
    _console = _console or Console(stderr=True, markup=False, highlight=False, emoji=False)
    return _console


_console: Console | None = None


class Bars:
    """A bar for each phase, as they come."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[mark]}", markup=False),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __rich__(self) -> Progress:
        return self._progress

    def show(self, fire: FireRecord) -> None:
        reported = fire.progress or {}
        for passed in phases(fire):
            self._end(passed["name"], passed["outcome"])
        name = current(fire)
        if name is not None and fire.state is State.RUNNING:
            bar = self._bar(name)
            message = printable(str(reported.get("message") or ""))
            shown = name if message.lower() in ("", name.replace("_", " ")) else f"{name}: {message}"
            self._progress.update(
                bar, description=shown, completed=reported.get("done") or 0, total=reported.get("total")
            )

    def _bar(self, name: str) -> TaskID:
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(printable(name), total=None, mark=RUNNING)
        return self._bars[name]

    def _end(self, name: str, outcome: str) -> None:
        bar = self._bar(name)
        task = self._progress.tasks[bar]
        if task.fields["mark"] != RUNNING:
            return
        if outcome == "failed":
            self._progress.stop_task(bar)  # where it was
            self._progress.update(bar, mark=MARKS[outcome])
        else:
            total = task.total or 1
            self._progress.update(bar, mark=MARKS.get(outcome, " "), total=total, completed=total)


class ProgressLines:
    """A line when a phase begins, and one when it has ended."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def show(self, fire: FireRecord) -> None:
        for passed in phases(fire):
            took = f" after {passed['seconds']:g} s" if passed["seconds"] else ""
            self._tell(f"{passed['name']}: {passed['outcome']}{took}")
        name = current(fire)
        if name is not None and fire.state is State.RUNNING:
            self._tell(f"{name} …")

    def _tell(self, line: str) -> None:
        if line not in self._reported:
            self._reported.add(line)
            note(line)


def phases(fire: FireRecord) -> list[Mapping[str, Any]]:
    """Those of a pipeline that are behind it."""
    shown = (fire.progress or {}).get("pipeline") or {}
    return list(shown.get("phases", []))


def current(fire: FireRecord) -> str | None:
    """The phase it is in; of a job without phases, the job. None: nothing to be seen yet."""
    reported = fire.progress or {}
    name = reported["pipeline"].get("phase") if "pipeline" in reported else fire.job_id
    return None if not reported or name == BEFORE_THE_FIRST else name
