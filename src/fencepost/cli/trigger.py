"""`fencepost trigger JOB`: run it now."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from typing import Any

import click

from fencepost.cli.following import follow_options, followed, told, warn_if_nobody_knows
from fencepost.cli.output import say
from fencepost.cli.source import Source, stored_job, takes, whoami
from fencepost.errors import AnotherRunIsActive, ConfigurationError, FencepostError, UsageError
from fencepost.handle import Handle
from fencepost.model import FireRecord, checked_id
from fencepost.store.base import Store


@click.command()
@takes("JOB")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument; JSON, else text.")
@click.option("--args", "text", metavar="JSON", help="All arguments as one JSON object.")
@click.option("--if-active", type=click.Choice(["queue", "refuse"]), default="queue", show_default=True)
@click.option("--idempotency-key", "name", help="The same key adds one fire however often it is sent.")
@click.option("--here", is_flag=True, help="Run it in this process (needs TARGET); waits for its end.")
@follow_options
def trigger(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    pairs: tuple[str, ...],
    text: str | None,
    if_active: str,
    name: str | None,
    here: bool,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Run JOB now, on whichever replica has room. Prints the key of the fire.

    Arguments given here replace those of the job. With --if-active refuse and a run that is active it adds
    nothing and exits 2.
    """
    source = Source.of(words, ("JOB",), url, namespace)
    request: dict[str, Any] = {"args": arguments(pairs, text), "idempotency_key": _checked(name)}
    request |= {"if_active": if_active, "by": whoami()}
    try:
        if here:
            fire = _run_here(source, request, timeout, as_json)
        else:
            fire = source.ask(lambda store: _add(source, store, request, wait, timeout, as_json))
    except AnotherRunIsActive as error:
        raise AnotherRunIsActive(f"Another run is already active: {str(error).rpartition(': ')[2]}") from None
    return told(fire, as_json, waited=here or wait or timeout is not None)


def arguments(pairs: tuple[str, ...], text: str | None) -> dict[str, Any] | None:
    """None: the job's own."""
    if not pairs and text is None:
        return None
    try:
        given = json.loads(text or "{}")
    except ValueError as error:
        raise UsageError(f"--args is not JSON ({error}); write it like '{{\"user\": 42}}'") from None
    if not isinstance(given, dict):
        raise UsageError("--args must be a JSON object by parameter name, like '{\"user\": 42}'")
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"--arg {pair!r}: write it as name=value")
        try:
            given[name] = json.loads(value)
        except ValueError:
            given[name] = value
    return given


async def _add(
    source: Source, store: Store, request: dict[str, Any], wait: bool, timeout: float | None, as_json: bool
) -> FireRecord:
    [job] = source.words
    await stored_job(store, job)
    await warn_if_nobody_knows(store, job)
    handle = await _triggered(source, job, request, as_json)
    return await followed(handle, wait, timeout)


async def _triggered(source: Source, job: str, request: dict[str, Any], as_json: bool) -> Handle:
    try:
        handle = await source.scheduler.do_trigger(job, **request)
    except ConfigurationError as error:  # the store is open: only the arguments can be wrong
        raise UsageError(str(error)) from None
    if not as_json:
        say(handle.key)  # before any waiting: whoever interrupts it knows what to look for
    return handle


def _run_here(source: Source, request: dict[str, Any], timeout: float | None, as_json: bool) -> FireRecord:
    """A replica for this one task joins, runs it and leaves. The ledger, overlap and fencing are as always;
    so another replica that knows the task may take the fire first."""
    if source.target is None:
        raise UsageError("--here needs the code: fencepost trigger app:scheduler JOB --here")
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", level=logging.INFO)
    [job] = source.words
    scheduler = source.scheduler
    scheduler.only(_task(source, job))

    async def session() -> FireRecord:
        waiting = asyncio.current_task()
        assert waiting is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, waiting.cancel)
        async with asyncio.timeout(timeout), scheduler:
            handle = await scheduler.ask(_triggered(source, job, request, as_json))
            return await handle.wait()

    try:
        return asyncio.run(session())
    except TimeoutError:
        raise FencepostError(
            f"{job} has not ended here within {timeout:g} s; this replica has left"
        ) from None
    except asyncio.CancelledError:
        raise FencepostError(f"stopped before {job} had ended; {_LEFT}") from None


def _task(source: Source, job: str) -> str:
    """The job may be declared in the code, or have been added to the store for one of its tasks."""
    declared = source.scheduler.jobs.get(job)
    if declared is not None:
        return declared.target
    return source.ask(lambda store: stored_job(store, job)).job.target


def _checked(name: str | None) -> str | None:
    try:
        return name if name is None else checked_id(name, "--idempotency-key")
    except ConfigurationError as error:
        raise UsageError(str(error)) from None


_LEFT = (
    "this replica has left, and a fire that had not ended waits for another (`fencepost cancel KEY` ends it)"
)
