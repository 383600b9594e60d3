"""Where a command finds its store, and its words.

A command that needs no code takes an optional TARGET before the words it needs: with one word more than
needed the first is the target. So `why JOB 03:00` and `why app:scheduler JOB 03:00` both work, and a job id
with a colon in it is never mistaken for a module.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from fencepost.cli.target import load
from fencepost.errors import ConfigurationError, StoreUnavailable, UsageError
from fencepost.model import JobRecord
from fencepost.scheduler import Scheduler
from fencepost.settings import Settings, did_you_mean, redacted
from fencepost.store.base import Store
from fencepost.store.sqlite.schema import Names

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])


def takes(*needed: str) -> Callable[[Command], Command]:
    """Options and arguments of a command on a store: `[TARGET] JOB WHEN --store URL --namespace NAME`."""
    metavar = " ".join(["[TARGET]", *needed])

    def decorate(command: Command) -> Command:
        command = click.option("--namespace", help="Of the store; default: FENCEPOST_NAMESPACE.")(command)
        command = click.option("--store", "url", help="URL of the store; default: FENCEPOST_STORE.")(command)
        return click.argument("words", nargs=-1, metavar=metavar)(command)

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@dataclass(frozen=True)
class Source:
    """A scheduler that takes no part: the target's, or one without jobs on the store that was named."""

    scheduler: Scheduler
    target: str | None
    words: tuple[str, ...]

    @classmethod
    def of(
        cls, words: Sequence[str], needed: Sequence[str], url: str | None, namespace: str | None
    ) -> Source:
        if not len(needed) <= len(words) <= len(needed) + 1:
            missing = needed[len(words) :]
            problem = f"Missing argument '{missing[0]}'." if missing else f"Unexpected '{words[-1]}'."
            raise click.UsageError(f"{problem} Expected: {' '.join(['[TARGET]', *needed])}.", _context())
        target = words[0] if len(words) > len(needed) else None
        scheduler = _scheduler(target, url, namespace)
        return cls(scheduler, target, tuple(words[len(words) - len(needed) :]))

    @property
    def settings(self) -> Settings:
        return self.scheduler.settings

    def ask(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Open the store, do this on it, close it. The store must be there: reading makes none."""
        store = self.scheduler.store
        must_exist(store, self.scheduler)

        async def session() -> T:
            try:
                await store.open()
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(session())


def _scheduler(target: str | None, url: str | None, namespace: str | None) -> Scheduler:
    if target is None:
        return Scheduler(store=url, namespace=namespace)
    scheduler = load(target)
    given: dict[str, Any] = {
        name: value for name, value in (("store", url), ("namespace", namespace)) if value is not None
    }
    if given:
        scheduler.settings = replace(scheduler.settings, **given)
        if url is not None and scheduler.store_name != redacted(scheduler.settings.store_url()):
            raise UsageError(f"{target} brings a store object of its own; leave --store out")
    return scheduler


def must_exist(store: Store, scheduler: Scheduler) -> None:
    """A command that looks must not answer from an empty store that it has just made itself."""
    name, namespace = scheduler.store_name, scheduler.settings.namespace
    if not store.shared:
        raise ConfigurationError(
            f"{name} lives inside one process, and nothing outside can see it; give the scheduler a store that "
            "is shared, such as sqlite:///app.db, and name it with --store or FENCEPOST_STORE"
        )
    path = getattr(store, "path", None)
    if not isinstance(path, Path):
        return
    if not path.exists():
        raise StoreUnavailable(
            f"there is no {path} yet: start a replica with `fencepost run app:scheduler`, or name the right store "
            "with --store or FENCEPOST_STORE"
        )
    if not _has_namespace(path, namespace):
        raise ConfigurationError(
            f"{path} has nothing of Fencepost in namespace {namespace!r}: name the right store with --store or "
            "FENCEPOST_STORE, the right namespace with --namespace or FENCEPOST_NAMESPACE"
        )


def _has_namespace(path: Path, namespace: str) -> bool:
    if path.is_dir():
        return (path / namespace).is_dir()
    table = Names(namespace)["meta"].strip('"')
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            query = "select 1 from sqlite_master where type = 'table' and name = ?"
            return db.execute(query, (table,)).fetchone() is not None
    except sqlite3.Error:
        return True  # not for us to judge: opening it says what is wrong


async def stored_job(store: Store, job_id: str) -> JobRecord:
    found = await store.jobs([job_id])
    if not found:
        raise await no_such_job(store, job_id)
    return found[0]


async def no_such_job(store: Store, job_id: str) -> UsageError:
    known = sorted(record.id for record in await store.jobs())
    hint = did_you_mean(job_id, known) or "; `fencepost jobs` lists what there is"
    return UsageError(f"there is no job {job_id!r} in the store{hint}")


def whoami() -> str:
    """Who acts, for the ledger."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may run as a number without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{socket.gethostname()}"


def _context() -> click.Context | None:
    return click.get_current_context(silent=True)
