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
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from fencepost.cli.completing import completing
from fencepost.cli.target import load
from fencepost.errors import ConfigurationError, NothingStored, StoreUnavailable, UsageError
from fencepost.insight.existence import WHERE_ELSE, must_exist, never_run
from fencepost.insight.lookup import no_such_job as no_such_job
from fencepost.insight.lookup import stored_job as stored_job
from fencepost.model.traces import clean_traceparent
from fencepost.runs.tracing import given_traceparent
from fencepost.scheduler.scheduler import Scheduler
from fencepost.settings import Settings, redacted
from fencepost.store.base import Store

T = TypeVar("T")
PATIENCE_SECONDS = 4.0
"""For opening the store. A command answers within ten."""
Command = TypeVar("Command", bound=Callable[..., Any])
HOST_TARGET: str | None = None
"""Put before the words of every command where a framework knows the scheduler (`hosted.py`)."""


def takes(*needed: str) -> Callable[[Command], Command]:
    """Options and arguments of a command on a store: `[TARGET] JOB WHEN --store URL --namespace NAME`."""
    metavar = " ".join(["[TARGET]", *needed])

    def decorate(command: Command) -> Command:
        command = click.option("--namespace", help="Of the store; default: FENCEPOST_NAMESPACE.")(command)
        command = click.option("--store", "url", help="URL of the store; default: FENCEPOST_STORE.")(command)
        return click.argument("words", nargs=-1, metavar=metavar, shell_complete=completing(*needed))(command)

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@dataclass(frozen=True)
class CommandSource:
    """A scheduler that takes no part: the target's, or one without jobs on the store that was named."""

    scheduler: Scheduler
    target: str | None
    words: tuple[str, ...]

    @classmethod
    def of(
        cls, words: Sequence[str], needed: Sequence[str], url: str | None, namespace: str | None
    ) -> CommandSource:
        hosted = int(words[:1] == (HOST_TARGET,))
        if not len(needed) <= len(words) - hosted <= len(needed) + 1 - hosted:
            missing = needed[len(words) - hosted :]
            problem = f"Missing argument '{missing[0]}'." if missing else f"Unexpected '{words[-1]}'."
            expected = " ".join(needed if hosted else ["[TARGET]", *needed]) or "no argument"
            raise click.UsageError(f"{problem} Expected: {expected}.", _context())
        target = words[0] if len(words) > len(needed) else None
        scheduler = _scheduler(target, url, namespace)
        return cls(scheduler, target, tuple(words[len(words) - len(needed) :]))

    @property
    def settings(self) -> Settings:
        return self.scheduler.settings

    def ask(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Open the store, do this on it, close it. Creates no namespace, and no store: an empty answer would be a wrong
        one."""
        store = self.scheduler.store
        must_exist(store, self.scheduler.store_name, self.target)

        async def session() -> T:
            store.creates = False
            try:
                await answering(self._open(store), self.scheduler)
                return await work(store)
            finally:
                await store.close()
                store.creates = True  # `trigger --here` joins with the same store later

        return asyncio.run(session())

    def check_store(self) -> None:
        """Raise if the store does not answer. A command must not wait for it, as a replica would; it may create the
        store, as a replica would."""
        store = self.scheduler.store

        async def session() -> None:
            try:
                await answering(store.open(), self.scheduler)
            finally:
                await store.close()

        asyncio.run(session())

    async def _open(self, store: Store) -> None:
        try:
            await store.open()
        except NothingStored as error:
            remedy = WHERE_ELSE if self.target is None else never_run(self.target)
            raise ConfigurationError(f"{error}; {remedy}") from None


async def answering(asked: Coroutine[Any, Any, T], scheduler: Scheduler) -> T:
    """A server that takes the connection and says nothing counts as one that is down."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await asked
    except TimeoutError:
        raise StoreUnavailable(
            f"{scheduler.store_name} did not answer within {PATIENCE_SECONDS:g} s"
        ) from None


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


def take_traceparent() -> None:
    """Link the fires that this command adds with the trace in which it was called."""
    given_traceparent.set(clean_traceparent(os.environ.get("TRACEPARENT")))


def whoami() -> str:
    """Who acts, for the ledger."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may run as a number without a name
        user = str(os.getuid()) if hasattr(os, "getuid") else "somebody"
    return f"{user}@{socket.gethostname()}"


def _context() -> click.Context | None:
    return click.get_current_context(silent=True)
