"""`fencepost import crontab FILE`: the schedules of another system as jobs, and what changes with them."""

from __future__ import annotations

from pathlib import Path

import click

from fencepost.cli.source import json_option

KINDS = ("crontab", "systemd", "apscheduler", "celery", "kubernetes", "django-celery-beat")
FORMATS = ("python", "toml")


@click.command("import")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("file", metavar="FILE")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: toml for commands, else python.")
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
    from fencepost.cli.importing.work import ImportOptions, carry_over  # the other commands need none of it

    return carry_over(kind, file, ImportOptions(form, output, tz, since, count, system, app, as_json))
