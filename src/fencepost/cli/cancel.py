"""`fencepost cancel KEY`: end a fire that runs or waits."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import click

from fencepost.cli.output import emit, note, say
from fencepost.cli.source import CommandSource, json_option, takes, whoami
from fencepost.errors import UsageError
from fencepost.insight.cluster import standings
from fencepost.insight.lookup import stored_fire
from fencepost.insight.views.shapes import fire_shape
from fencepost.model import FireRecord, Job, State
from fencepost.store.base import FireQuery, Store

POLLS, PAUSE_SECONDS = 20, 0.1


@click.command()
@takes("KEY")
@click.option(
    "--owner-is-dead",
    is_flag=True,
    help="The replica that runs KEY is dead, and you know: settle the run now, as after a crash.",
)
@click.option("--yes", is_flag=True, help="With --owner-is-dead: do not ask.")
@json_option
def cancel(
    words: tuple[str, ...],
    url: str | None,
    namespace: str | None,
    owner_is_dead: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Cancel the fire KEY.

    At once if it waits; if it runs, its replica is asked to end it. Exits 1 if it had ended already.
    """
    source = CommandSource.of(words, ("KEY",), url, namespace)
    fire, done = _settle(source, yes) if owner_is_dead else _ask_to_end(source)
    if as_json:
        emit(fire_shape(fire))
    elif done:
        say(f"{fire.key} {_became(fire)}")
    elif fire.state.final:
        say(f"{fire.key} had ended already: {fire.state}")
    else:
        say(
            f"{fire.key} has changed: another run of it has begun, or waits; see `fencepost show` and try again"
        )
    return 0 if done else 1


def _ask_to_end(source: CommandSource) -> tuple[FireRecord, bool]:
    async def end(store: Store) -> FireRecord:
        found = await stored_fire(store, source.words[0])
        fire = await source.scheduler.fire_operations.cancel(found.key, by=whoami())
        return fire if fire.state.final else await _soon_ended(store, fire)

    fire = source.ask(end)
    return fire, not fire.state.final or fire.state is State.CANCELLED


async def _soon_ended(store: Store, fire: FireRecord) -> FireRecord:
    """Its replica hears of it at once, if it is well: then there is more to say."""
    for _ in range(POLLS):
        await asyncio.sleep(PAUSE_SECONDS)
        [fire] = await store.find_fires(FireQuery(key=fire.key)) or [fire]
        if fire.state.final:
            break
    return fire


def _became(fire: FireRecord) -> str:
    if fire.state is State.RUNNING:
        return f"is running; its replica {fire.replica} is asked to end it"
    if fire.state is State.WAITING:
        return "waits for a replica to run it again"
    # Of a function in a thread, that it goes on.
    return f"is {fire.state}" + (f"; {fire.error}" if fire.state is State.CANCELLED and fire.error else "")


# --- the replica is dead, says a person ---------------------------------------------------------------------


@dataclass(frozen=True)
class SeenRun:
    """The run as it was when the person was asked."""

    fire: FireRecord
    again: bool
    """Whether its job says that it is run again after a crash."""
    replica: str


def _settle(source: CommandSource, yes: bool) -> tuple[FireRecord, bool]:
    """Only the run that was seen: a later one of the same fire has another token."""
    seen = source.ask(lambda store: _read_run(store, source.words[0]))
    fire = seen.fire
    if fire.state.final:
        return fire, False
    if fire.state is not State.RUNNING:
        raise UsageError(f"{fire.key} is {fire.state}: no replica runs it; leave out --owner-is-dead")
    note(_warning(seen))
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("confirm with --yes: there is no terminal to ask on")
        click.confirm("Settle it?", abort=True, err=True)
    after = source.ask(lambda _: source.scheduler.fire_operations.cancel(fire.key, whoami(), fire.token))
    last = after.attempts[-1] if after.attempts else None
    return after, last is not None and (last.token, last.outcome) == (fire.token, "lost")


async def _read_run(store: Store, text: str) -> SeenRun:
    fire = await stored_fire(store, text)
    again = any(_runs_again(fire, record.job) for record in await store.jobs([fire.job_id]))
    roster = await store.roster()
    standing = (await standings(store, roster)).get(fire.replica or "", "gone")
    host = next((f"{each.host}, pid {each.pid}, " for each in roster.replicas if each.id == fire.replica), "")
    return SeenRun(fire, again, f"{fire.replica} ({host}{standing})")


def _runs_again(fire: FireRecord, job: Job) -> bool:
    return job.after_crash == "rerun" and fire.crashes + 1 < job.crash_attempts and not fire.cancel_requested


def _warning(seen: SeenRun) -> str:
    fate = "is run again at once" if seen.again else "is recorded as lost, and its job is free to run again"
    return (
        f"{seen.fire.key} runs on {seen.replica}.\n"
        f"Settled now, it {fate}.\n"
        "If that replica lives after all, its body goes on for another heartbeat or\n"
        "longer, beside whatever runs by then. Its result is refused, but effects that\n"
        "do not check the token (fire.fenced, fire.token) may happen twice.\n"
        "Make sure that the process is gone."
    )
