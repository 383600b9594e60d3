"""`fencepost jobs add|edit`: definitions made by hand, one from options or many from a file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from fencepost.cli.output import emit, note, say, table, when
from fencepost.cli.source import CommandSource, json_option, takes, whoami
from fencepost.cli.trigger import arguments
from fencepost.errors import ConfigurationError, FencepostError, UsageError
from fencepost.insight.views.shapes import Shape
from fencepost.model.triggers import iso
from fencepost.scheduler.editing import Edit, write
from fencepost.store.base import Store

LARGEST_FILE = 5_000_000
Command = TypeVar("Command", bound=Callable[..., Any])
OPTIONS = (
    ("--task", "The code to run: a task that a replica has. Default: ID."),
    ("--every", "As 5m or 1h30m."),
    ("--cron", "As '30 2 * * *'."),
    ("--rrule", "As 'FREQ=MONTHLY;BYDAY=-1FR'; needs --start."),
    ("--on", "Of --after: succeeded (the default) or ended."),
    ("--tz", "Of --cron and --rrule, as Europe/Zurich."),
    ("--start", "ISO time from which on it fires."),
    ("--end", "ISO time after which it fires no more."),
    ("--timeout", "As 30m."),
    ("--owner", "Whom to ask."),
    ("--description", "What it is for."),
)


def definition_options(command: Command) -> Command:
    for decorate in (
        json_option,
        click.option("--dry-run", is_flag=True, help="Show the fires old and new; change nothing."),
        click.option(
            "--from-file", "path", type=click.Path(path_type=Path), help="Jobs from a TOML or JSON file."
        ),
        click.option(
            "--set", "more", multiple=True, metavar="NAME=VALUE", help="Any other policy; JSON, else text."
        ),
        click.option("--priority", type=int, help="-100 to 100: of what is due a higher one runs first."),
        click.option("--tag", "tags", multiple=True, help="May be given several times."),
        click.option(
            "--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument; JSON or text."
        ),
        click.option("--at", "moments", multiple=True, help="ISO time with an offset; several are possible."),
        click.option(
            "--after", "parents", multiple=True, help="A job that it follows; several are possible."
        ),
        *(click.option(name, help=text) for name, text in reversed(OPTIONS)),
    ):
        command = decorate(command)
    return command


@click.command("add")
@takes("ID")
@click.option("--replace", "replaces", is_flag=True, help="Replace a job that is there already.")
@definition_options
def add_job(
    words: tuple[str, ...], url: str | None, namespace: str | None, replaces: bool, **given: Any
) -> None:
    """Store job ID: a schedule for a task that a replica has.

    --from-file stores all jobs of a file: `[jobs.ID]` tables as in fencepost.toml, with `task` in place of `command`.
    All are checked before the first is written.
    """
    change = JobEdits.of(words, url, namespace, given)

    def check(edit: Edit) -> None:
        if edit.outcome == "changed" and not replaces:
            id = edit.job.id
            raise UsageError(
                f"job {id!r} is there already and differs; use `fencepost jobs edit {id}`, or --replace"
            )

    change.make(whole=True, check=check)


@click.command("edit")
@takes("ID")
@definition_options
def edit_job(words: tuple[str, ...], url: str | None, namespace: str | None, **given: Any) -> None:
    """Change the definition of job ID. What is not named stays; `--set timeout=null` brings the default back."""
    JobEdits.of(words, url, namespace, given).make(whole=False)


class JobEdits:
    def __init__(
        self, source: CommandSource, jobs: Mapping[str, Mapping[str, Any]], dry_run: bool, as_json: bool
    ) -> None:
        self._source = source
        self._jobs = jobs
        self._dry_run = dry_run
        self._as_json = as_json

    @classmethod
    def of(
        cls, words: Sequence[str], url: str | None, namespace: str | None, given: Mapping[str, Any]
    ) -> JobEdits:
        path: Path | None = given["path"]
        source = CommandSource.of(words, () if path else ("ID",), url, namespace)
        options = words_of(given)
        if path is not None and options:
            raise UsageError(f"{path} says all of it; leave out {', '.join(f'--{name}' for name in options)}")
        jobs = read_jobs(path) if path is not None else {source.words[0]: options}
        return cls(source, jobs, given["dry_run"], given["as_json"])

    def make(self, *, whole: bool, check: Callable[[Edit], None] = lambda edit: None) -> None:
        async def work(store: Store) -> list[Edit]:
            edits = []
            for id, given in self._jobs.items():
                try:
                    edit = await self._source.scheduler.editor.prepare(store, id, given, whole=whole)
                    check(edit)
                except FencepostError as error:
                    raise type(error)(f"{id}: {error}") if len(self._jobs) > 1 else error from None
                edits.append(edit)
            if not self._dry_run:
                for edit in edits:
                    await write(store, edit, whoami(), None, self._source.settings.revision)
            return edits

        edits = self._source.ask(work)
        if self._as_json:
            shapes = [edit_shape(edit, self._dry_run) for edit in edits]
            emit(shapes[0] if len(shapes) == 1 else shapes)
            return
        for edit in edits:
            print_edit(edit, self._dry_run)


def words_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the words of a definition."""
    words = {name.removeprefix("--"): given[name.removeprefix("--")] for name, _ in OPTIONS}
    words = {name: value for name, value in words.items() if value is not None}
    if given["moments"]:
        words["at"] = list(given["moments"])
    if given["parents"]:
        words["after"] = list(given["parents"])
    if given["priority"] is not None:
        words["priority"] = given["priority"]
    if given["tags"]:
        words["tags"] = list(given["tags"])
    if given["pairs"]:
        words["args"] = arguments(given["pairs"], None)
    for name, value in (arguments(given["more"], None) or {}).items():
        words[name.replace("-", "_")] = value
    return words


def read_jobs(path: Path) -> dict[str, Mapping[str, Any]]:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigurationError(f"{path} is larger than {LARGEST_FILE} bytes")
        table = json.loads(content) if path.suffix == ".json" else tomllib.loads(content.decode())
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not valid TOML or JSON: {error}") from None
    jobs = table.get("jobs") if isinstance(table, Mapping) else None
    if not isinstance(jobs, Mapping) or not jobs:
        raise ConfigurationError(
            f'{path} has no jobs; write [jobs.report] with task = "report" and every = "1h"'
        )
    return dict(jobs)


def edit_shape(edit: Edit, dry_run: bool) -> Shape:
    return {
        "job_id": edit.job.id,
        "outcome": edit.outcome,
        "dry_run": dry_run,
        "version": edit.version if dry_run else edit.job.fingerprint,
        **edit.difference,
        "fires_before": [iso(fire) for fire in edit.fires_before],
        "fires_after": [iso(fire) for fire in edit.fires_after],
    }


def print_edit(edit: Edit, dry_run: bool) -> None:
    would = {"created": "would be stored", "changed": "would be changed", "unchanged": "would stay as it is"}
    done = {"created": "is stored", "changed": "is changed", "unchanged": "is as it was"}
    say(f"{edit.job.id} {(would if dry_run else done)[edit.outcome]}")
    before, after = edit.difference["before"] or {}, edit.difference["after"]
    if edit.outcome == "changed":
        table(
            ("what", "before", "after"),
            ((name, _text(before.get(name)), _text(after[name])) for name in after),
        )
    if edit.fires_before != edit.fires_after:
        rows = max(len(edit.fires_before), len(edit.fires_after))
        old, new = (
            [when(fire) for fire in fires] + [""] * (rows - len(fires))
            for fires in (edit.fires_before, edit.fires_after)
        )
        table(("next fires before", "after"), zip(old, new, strict=True))
    if edit.before is not None and edit.before.source == "code" and edit.outcome == "changed":
        note(
            f"code declares {edit.job.id}: what was made by hand holds until `fencepost jobs rm` and a restart"
        )


def _text(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)
