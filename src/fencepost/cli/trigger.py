"""`fencepost trigger JOB`: run it now."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass, replace
from typing import Any

import click

from fencepost.cli.following import ended, follow_options, followed, print_outcome, warn_if_unknown
from fencepost.cli.output import say
from fencepost.cli.progress import log_to_stderr, view
from fencepost.cli.source import CommandSource, stored_job, take_traceparent, takes, whoami
from fencepost.cli.views import tz_option
from fencepost.errors import AnotherRunIsActive, ConfigurationError, FencepostError, UsageError
from fencepost.insight.views.times import coming
from fencepost.insight.views.words import shown_in
from fencepost.model import FireRecord, checked_id
from fencepost.pipeline.pipeline import Pipeline
from fencepost.pipeline.status import is_pipeline
from fencepost.scheduler.handle import Handle
from fencepost.scheduler.manual import NOW, Due, due_in
from fencepost.scheduler.signals import on_signal
from fencepost.store.base import Store


@click.command()
@takes("JOB")
@click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument; JSON, else text.")
@click.option("--args", "text", metavar="JSON", help="All arguments as one JSON object.")
@click.option("--mode", help="Of a pipeline; the same as --arg mode=….")
@click.option(
    "--force", is_flag=True, help="Of a pipeline: as if its sources had changed; as --arg force=true."
)
@click.option(
    "--trigger", "by_what", metavar="NAME", help="Of a pipeline: by what, for its status; as --arg trigger=…."
)
@click.option(
    "--if-active",
    type=click.Choice(["queue", "refuse"]),
    help="While another run is active; default: queue, of a pipeline refuse.",
)
@click.option("--idempotency-key", "name", help="The same key adds one fire however often it is sent.")
@click.option("--in", "delay", metavar="DURATION", help="Run it once, after so long: 10m.")
@click.option("--at", "moment", metavar="TIME", help="Run it once, at 18:00, or at an ISO time; see --tz.")
@tz_option
@click.option("--here", is_flag=True, help="Run it in this process (needs TARGET); waits for its end.")
@follow_options
def trigger(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    pairs: tuple[str, ...],
    text: str | None,
    mode: str | None,
    force: bool,
    by_what: str | None,
    if_active: str | None,
    name: str | None,
    delay: str | None,
    moment: str | None,
    here: bool,
    wait: bool,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Run JOB now, or once later, on whichever replica has room. Prints the key of the fire.

    Arguments given here replace those of the job. A pipeline whose run is active, and any other job with
    --if-active refuse, adds nothing and exits 2. With --wait its progress is shown.
    """
    source = CommandSource.of(words, ("JOB",), url, namespace)
    if mode is not None:
        pairs = (*pairs, f"mode={json.dumps(mode)}")
    if force:
        pairs = (*pairs, "force=true")
    if by_what is not None:
        pairs = (*pairs, f"trigger={json.dumps(by_what)}")
    of_pipeline = mode is not None or force or by_what is not None
    if (delay is not None) + (moment is not None) + here > 1:
        raise UsageError("--in, --at and --here exclude each other")
    take_traceparent()
    request = Request(arguments(pairs, text), checked_name(name), if_active, of_pipeline, delay, moment)
    if here:
        fire = _run_here(source, request, timeout, as_json)
    else:
        fire = source.ask(lambda store: _add(source, store, request, wait, timeout, as_json))
    return print_outcome(fire, as_json, waited=here or wait or timeout is not None)


@dataclass(frozen=True)
class Request:
    args: dict[str, Any] | None
    idempotency_key: str | None
    if_active: str | None
    """None: as is usual for what it is."""
    of_pipeline: bool
    delay: str | None = None
    moment: str | None = None

    async def due(self, store: Store) -> Due:
        if self.delay is not None:
            return due_in(self.delay)
        if self.moment is not None:
            now = (await store.roster()).now
            return Due(at=coming(self.moment, now, shown_in.get(), "--at"))
        return NOW

    def keywords(self) -> dict[str, Any]:
        usual = "refuse" if self.of_pipeline else "queue"
        return {
            "args": self.args,
            "idempotency_key": self.idempotency_key,
            "if_active": self.if_active or usual,
            "by": whoami(),
        }


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
    source: CommandSource, store: Store, request: Request, wait: bool, timeout: float | None, as_json: bool
) -> FireRecord:
    [job] = source.words
    await stored_job(store, job)
    await warn_if_unknown(store, job)
    handle = await _triggered(source, store, request, as_json)
    return await followed(handle, wait, timeout, quietly=as_json)


async def _triggered(source: CommandSource, store: Store, request: Request, as_json: bool) -> Handle:
    [job] = source.words
    if isinstance(source.scheduler.function_of(job), Pipeline) or await is_pipeline(store, job):
        request = replace(request, of_pipeline=True)
    try:
        due = await request.due(store)
        handle = await source.scheduler.fire_operations.trigger(job, due=due, **request.keywords())
    except ConfigurationError as error:  # the store is open: only the arguments can be wrong
        raise UsageError(str(error)) from None
    except AnotherRunIsActive as error:
        kind = "Another pipeline run" if request.of_pipeline else "Another run"
        raise AnotherRunIsActive(f"{kind} is already active: {str(error).rpartition(': ')[2]}") from None
    if not as_json:
        say(handle.key)  # before any waiting: a user who interrupts it knows the key
    return handle


def _run_here(source: CommandSource, request: Request, timeout: float | None, as_json: bool) -> FireRecord:
    """A replica for this one task joins, runs it and leaves. The ledger, overlap and fencing are as always;
    so another replica that knows the task may take the fire first."""
    if source.target is None:
        raise UsageError("--here needs the code: fencepost trigger app:scheduler JOB --here")
    log_to_stderr()
    [job] = source.words
    scheduler = source.scheduler
    source.check_store()
    scheduler.declared.only(_task(source, job))

    async def session() -> FireRecord:
        waiting = asyncio.current_task()
        assert waiting is not None
        on_signal(asyncio.get_running_loop(), signal.SIGTERM, waiting.cancel)
        async with asyncio.timeout(timeout), scheduler:
            triggered = scheduler.lifecycle.with_store(
                lambda store: _triggered(source, store, request, as_json)
            )
            handle = await scheduler.ask(triggered)
            with view(quietly=as_json) as show:
                return await ended(handle.record, show)

    try:
        return asyncio.run(session())
    except TimeoutError:
        raise FencepostError(
            f"{job} has not ended here within {timeout:g} s; this replica has left"
        ) from None
    except asyncio.CancelledError:
        raise FencepostError(f"stopped before {job} had ended; {_LEFT}") from None


def _task(source: CommandSource, job: str) -> str:
    """The job may be declared in the code, or have been added to the store for one of its tasks."""
    declared = source.scheduler.jobs.get(job)
    if declared is not None:
        return declared.target
    return source.ask(lambda store: stored_job(store, job)).job.target


def checked_name(name: str | None) -> str | None:
    try:
        return name if name is None else checked_id(name, "--idempotency-key")
    except ConfigurationError as error:
        raise UsageError(str(error)) from None


_LEFT = (
    "this replica has left, and a fire that had not ended waits for another (`fencepost cancel KEY` ends it)"
)
