"""Reads, compares, writes and reports."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from fencepost.cli.importing.report import ImportReport, as_shape, lines_of
from fencepost.cli.importing.sources import read
from fencepost.cli.migrate.compare import compare
from fencepost.cli.migrate.values import Imported, ShellCommand
from fencepost.cli.migrate.write import in_python, in_toml
from fencepost.cli.output import emit, note, say
from fencepost.clock import SystemClock
from fencepost.errors import ConfigurationError, UsageError
from fencepost.model.triggers import from_iso, zone_name

WRITERS: dict[str, Callable[[Imported, str], str]] = {"python": in_python, "toml": in_toml}
SUFFIXES = {".py": "python", ".toml": "toml"}


@dataclass(frozen=True)
class ImportOptions:
    """What the command line asks for, apart from the file."""

    form: str | None
    output: Path | None
    tz: str | None
    since: str | None
    count: int
    system: bool | None
    app: str | None
    as_json: bool


def carry_over(kind: str, file: str, wish: ImportOptions) -> int:
    """The exit code is that of `diff`: 1 if something was left out or fires at other times."""
    output = wish.output
    if output is not None and os.path.lexists(output):
        raise UsageError(f"{output} exists, and nothing is overwritten; name a new file")
    _check(wish)
    imported = read(kind, file, wish)
    after = _moment(wish.since) if wish.since else SystemClock().wall()
    comparisons = [compare(job, after, wish.count) for job in imported.jobs]
    form = wish.form or _form_for(imported, output)
    code = WRITERS[form](imported, f"Imported from {kind}: {Path(file).name}")
    report = ImportReport(kind, file, imported, comparisons)
    if output is not None and imported.jobs:
        _write(
            output,
            code,
            secret=any(isinstance(job.body, ShellCommand) and job.body.env for job in imported.jobs),
        )
    if wish.as_json:
        emit(as_shape(report, code if output is None else None))
    else:
        _print(report, code, output)
    return 0 if report.complete else 1


def _check(wish: ImportOptions) -> None:
    if wish.tz is not None:
        zone_name(wish.tz)
    if wish.app is None:
        return
    module, colon, attribute = wish.app.partition(
        ":"
    )  # it is written into Python, so it must be nothing but names
    if not colon or not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        raise UsageError(f"--app {wish.app!r} must be module:attribute, as in proj.celery:app")


def _print(report: ImportReport, code: str, output: Path | None) -> None:
    """The code goes where a shell can redirect it, the report where a person sees it."""
    if output is None and report.imported.jobs:
        click.echo(code, nl=False)
    tell = note if output is None else say
    for line in lines_of(report):
        tell(line)
    if output is not None and report.imported.jobs:
        target = output if output.suffix == ".toml" else f"{output.stem}:scheduler"
        say(f"\nWritten to {output}. Next: fencepost run {target}")
        if output.suffix == ".toml" and output.name != "fencepost.toml":
            note(f"fencepost: a job file must be called fencepost.toml; rename {output} before you run it")


def _form_for(imported: Imported, output: Path | None) -> str:
    if output is not None and output.suffix in SUFFIXES:
        return SUFFIXES[output.suffix]
    return "toml" if all(isinstance(job.body, ShellCommand) for job in imported.jobs) else "python"


def _write(output: Path, code: str, *, secret: bool) -> None:
    """A new file. What holds an environment is for its owner only: crontabs and manifests keep passwords there."""
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o666)
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(code)
    except FileExistsError:
        raise UsageError(f"{output} exists, and nothing is overwritten; name a new file") from None
    except OSError as error:
        raise ConfigurationError(f"cannot write {output}: {error.strerror}; name another file") from None


def _moment(text: str) -> datetime:
    try:
        return from_iso(text)
    except ValueError as error:
        raise UsageError(f"--from {text!r}: {error}") from None
