"""`fencepost store`: the stored format, where a namespace is kept, and who may use it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import click

from fencepost import __version__
from fencepost.cli.counter import counter
from fencepost.cli.output import emit, facts, say
from fencepost.cli.source import CommandSource, answering, json_option, takes
from fencepost.errors import ConfigurationError, NothingStored
from fencepost.insight.existence import WHERE_ELSE, must_exist
from fencepost.settings import Settings, redacted
from fencepost.store.formats import Contents


@click.group()
def store() -> None:
    """See and upgrade the stored format, move to a Redis cluster; SQL for a role with few rights."""


@store.command()
@takes()
@click.option("--dry-run", is_flag=True, help="Only say what would be done; nothing is written.")
@click.option("--create", is_flag=True, help="Make the store if there is none.")
@json_option
def upgrade(
    words: tuple[str, ...], url: str | None, namespace: str | None, dry_run: bool, create: bool, as_json: bool
) -> None:
    """Say what is stored, in which format, and bring it to the format of this version.

    A replica does the same when it starts. This command is for doing it ahead of time, for seeing it first, and for
    databases in which replicas may not create tables.
    """
    source = CommandSource.of(words, (), url, namespace)
    before = _contents(source, create)
    upgraded = False
    if not dry_run and (before is None or not before.format.is_current):
        source.check_store()
        upgraded = True
    after = _contents(source, create) if upgraded else before
    if as_json:
        emit(_shape(source, before, after, upgraded))
    else:
        _tell(source, before, after, upgraded)
    if upgraded and after is not None and not after.format.is_current:
        raise ConfigurationError("a replica of an earlier version is writing the store right now; try again")


@store.command()
@click.option("--from", "source", required=True, metavar="URL", help="The server that holds it now.")
@click.option("--store", "url", help="URL of the cluster; default: FENCEPOST_STORE.")
@click.option("--namespace", help="Of the store; default: FENCEPOST_NAMESPACE.")
@json_option
def move(source: str, url: str | None, namespace: str | None, as_json: bool) -> None:
    """Move a namespace from one Redis or Valkey server to a cluster, with its history.

    Replicas on the old server start and record nothing more from the first moment on; start those on the cluster when
    the command has ended. What ran at that moment is recorded as lost on the cluster. If it was cut off, call it again.
    """
    from fencepost.store.redis.move import move as moved

    settings = Settings.load(namespace=namespace, store=url)
    if settings.store is None:
        raise ConfigurationError("give the URL of the cluster by --store, or FENCEPOST_STORE")
    with counter() as show:
        progress = partial(show, "keys copied") if show else None
        keys = asyncio.run(moved(source, settings.store, settings.namespace, progress))
    if as_json:
        names = {"store": redacted(settings.store), "from": redacted(source), "namespace": settings.namespace}
        emit({**names, "keys": keys})
    elif keys:
        say(f"moved {keys} keys: start the replicas on the cluster now")
    else:
        say("this namespace had been moved before: nothing to do")


@store.command()
@click.argument("role")
@click.option("--namespace", help="Of the store; default: FENCEPOST_NAMESPACE.")
@click.option("--transactions", is_flag=True, help="Also for triggers inside of your own transactions.")
def grants(role: str, namespace: str | None, transactions: bool) -> None:
    """Print SQL that lets ROLE take part on PostgreSQL without owning anything.

    Run it as the role that owns the schema: `fencepost store grants app | psql …`. It asks no server.
    """
    from fencepost.store.postgres.grants import grants as sql

    settings = Settings.load(namespace=namespace)
    click.echo(sql(settings.namespace, role, transactions), nl=False)


def _contents(source: CommandSource, create: bool) -> Contents | None:
    """None: nothing is stored, and that is no error with `--create`."""
    asked, scheduler = source.scheduler.store, source.scheduler
    path = getattr(asked, "path", None)
    if create and isinstance(path, Path) and not path.exists():
        return None
    must_exist(asked, scheduler.store_name, source.target)
    try:
        return asyncio.run(answering(asked.contents(), scheduler))
    except NothingStored as error:
        if create:
            return None
        raise ConfigurationError(f"{error}; {WHERE_ELSE}, or add --create") from None


def _shape(
    source: CommandSource, before: Contents | None, after: Contents | None, upgraded: bool
) -> dict[str, Any]:
    steps = list(before.format.steps) if before is not None else ["create the store"]
    return {
        "store": source.scheduler.store_name,
        "namespace": source.settings.namespace,
        "version": __version__,
        "format": {
            "stored": after.format.stored if after is not None else None,
            "known": after.format.known if after is not None else None,
            "was": before.format.stored if before is not None else None,
        },
        "steps": steps,
        "upgraded": upgraded,
        "jobs": after.jobs if after is not None else 0,
        "fires": after.fires if after is not None else 0,
        "replicas": [
            {"replica": each.id, "version": each.version} for each in (after.replicas if after else ())
        ],
    }


def _tell(source: CommandSource, before: Contents | None, after: Contents | None, upgraded: bool) -> None:
    found = _shape(source, before, after, upgraded)
    others = [f"{each['replica']} ({each['version']})" for each in found["replicas"]]
    stored, known = found["format"]["stored"], found["format"]["known"]
    facts(
        [
            ("store", f"{found['store']}, namespace {found['namespace']}"),
            (
                "format",
                f"{stored}, this version ({__version__}) writes {known}" if after else "nothing is stored",
            ),
            ("holds", _holdings(after) if after else None),
            ("replicas", ", ".join(others) or "none"),
        ]
    )
    if not found["steps"]:
        say("up to date: there is nothing to do")
        return
    say("done:" if upgraded else "an upgrade would:")
    for step in found["steps"]:
        say(f"  {step}")
    if not upgraded and others:
        say("replicas of an earlier version start nothing afterwards: upgrade them soon, or stop them first")


def _holdings(found: Contents) -> str:
    fires = "" if found.fires is None else f", {found.fires} fires"
    return f"{found.jobs} jobs{fires}"
