"""`fencepost import crontab FILE`: the schedules of another system as jobs, and what changes with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from fencepost.cli.importing.report import Report, as_shape, lines_of
from fencepost.cli.importing.sources import read
from fencepost.cli.output import emit, note, say
from fencepost.cli.source import json_option
from fencepost.clock import SystemClock
from fencepost.errors import ConfigurationError, UsageError
from fencepost.migrate.compare import compare
from fencepost.migrate.values import Command, Imported
from fencepost.migrate.write import in_python, in_toml
from fencepost.model.triggers import from_iso, zone_name

KINDS = ("crontab", "systemd", "apscheduler", "celery", "kubernetes", "django-celery-beat")
WRITERS: dict[str, Callable[[Imported, str], str]] = {"python": in_python, "toml": in_toml}
SUFFIXES = {".py": "python", ".toml": "toml"}


@dataclass(frozen=True)
class Wish:
    """What the command line asks for, apart from the file."""

    tz: str | None
    system: bool | None
    app: str | None


@click.command("import")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("file", metavar="FILE")
@click.option(
    "--format", "form", type=click.Choice(sorted(WRITERS)), help="Default: toml for commands, else python."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the jobs to this new file.")
@click.option(
    "--tz", metavar="ZONE", help="The zone that the old system runs in, where the file does not say."
)
@click.option("--from", "since", help="Compare the fires after this ISO time; default: now.")
@click.option(
    "--count", type=click.IntRange(1, 1000), default=20, show_default=True, help="Fires to compare."
)
@click.option(
    "--system/--no-system", default=None, help="A crontab with a user column; default: by its path."
)
@click.option("--app", metavar="MODULE:ATTRIBUTE", help="The Celery app that takes the messages.")
@json_option
def import_(
    kind: str,
    file: str,
    form: str | None,
    output: Path | None,
    tz: str | None,
    since: str | None,
    count: int,
    system: bool | None,
    app: str | None,
    as_json: bool,
) -> int:
    """Print the schedules of another system as jobs: Python, or TOML for fencepost.toml.

    FILE is a crontab, a .timer or a folder of units, a manifest, a Python file, or a dump of django-celery-beat's
    tables; `-` is standard input. Files are read and never executed; only MODULE:ATTRIBUTE, for celery and apscheduler,
    imports the module. The report compares the next fires, old and new, and lists what cannot be carried over. Exits 1
    if something was left out or fires at other times.
    """
    if output is not None and os.path.lexists(output):
        raise UsageError(f"{output} exists, and nothing is overwritten; name a new file")
    wish = Wish(zone_name(tz) if tz else None, system, _checked_app(app))
    imported = read(kind, file, wish)
    after = _moment(since) if since else SystemClock().wall()
    comparisons = [compare(job, after, count) for job in imported.jobs]
    code = _code(imported, form or _form_for(imported, output), f"Imported from {kind}: {Path(file).name}")
    report = Report(kind, file, imported, comparisons, count)
    if output is not None and imported.jobs:
        _write(output, code, secret=any(isinstance(j.body, Command) and j.body.env for j in imported.jobs))
    if as_json:
        emit(as_shape(report, code if output is None else None))
    else:
        _print(report, code, output)
    return 0 if report.complete else 1


def _print(report: Report, code: str, output: Path | None) -> None:
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


def _code(imported: Imported, form: str, title: str) -> str:
    return WRITERS[form](imported, title)


def _form_for(imported: Imported, output: Path | None) -> str:
    if output is not None and output.suffix in SUFFIXES:
        return SUFFIXES[output.suffix]
    return "toml" if all(isinstance(job.body, Command) for job in imported.jobs) else "python"


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


def _checked_app(app: str | None) -> str | None:
    """It is written into Python, so it must be nothing but names."""
    if app is None:
        return None
    module, colon, attribute = app.partition(":")
    if not colon or not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        raise UsageError(f"--app {app!r} must be module:attribute, as in proj.celery:app")
    return app
