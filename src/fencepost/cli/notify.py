"""`fencepost notify`: what leaves by channels."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from fencepost.cli.notify_rules import RULE_COMMANDS
from fencepost.cli.outbox import OUTBOX_COMMANDS
from fencepost.cli.output import emit, say
from fencepost.cli.source import CommandSource, json_option, takes
from fencepost.clock import SystemClock
from fencepost.errors import DeliveryFailed, UsageError
from fencepost.model.notices import Notice
from fencepost.notify.channel import Channel
from fencepost.scheduler.scheduler import Scheduler
from fencepost.settings import did_you_mean

JOB_FILE = Path("fencepost.toml")


@click.group()
def notify() -> None:
    """See what channels have to deliver, and try them."""


for command in (*OUTBOX_COMMANDS, *RULE_COMMANDS):
    notify.add_command(command)


@notify.command()
@takes("CHANNEL")
@json_option
def test(words: tuple[str, ...], url: str | None, namespace: str | None, as_json: bool) -> int:
    """Send one test notice through CHANNEL, and say what was answered.

    TARGET is the code or the fencepost.toml that names the channel. The store is not asked. At Sentry and Healthchecks
    a test changes nothing. Exits 1 if it could not be delivered.
    """
    if len(words) == 1 and _names_channels(JOB_FILE):
        words = (str(JOB_FILE), *words)
    source = CommandSource.of(words, ("CHANNEL",), url, namespace)
    channel = _channel(source)
    error: str | None = None
    with _heard() as answers:
        try:
            asyncio.run(channel.deliver([_test_notice(source.scheduler)]))
        except DeliveryFailed as failure:
            error = failure.reason
    if as_json:
        emit({"channel": channel.name, "delivered": error is None, "answers": answers, "error": error})
    elif error is None:
        say(f"{channel.name}: delivered" + (f"; {', '.join(answers)}" if answers else ""))
    else:
        say(f"{channel.name}: not delivered: {error}")
    return int(error is not None)


def _names_channels(path: Path) -> bool:
    try:
        return "[[notify]]" in path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def _channel(source: CommandSource) -> Channel:
    name, channels = source.words[0], source.scheduler.channels
    if name in channels:
        return channels[name]
    if source.target is None:
        raise UsageError(
            f"name the code that has the channel, as in `fencepost notify test app:scheduler {name}`: "
            f"{JOB_FILE} here has no [[notify]]"
        )
    there = (
        f"; there are {', '.join(sorted(channels))}" if channels else "; scheduler.notify(…) was not called"
    )
    raise UsageError(f"there is no channel {name!r}{did_you_mean(name, channels) or there}")


def _test_notice(scheduler: Scheduler) -> Notice:
    """Its id is its own: a receiver that counts by ids must take each test."""
    settings = scheduler.settings
    details = {"namespace": settings.namespace, "dashboard_url": settings.dashboard_url}
    at, id = SystemClock().wall(), f"test-{secrets.token_hex(8)}"
    return Notice(id, "test", "fencepost-test", None, "", None, None, at, 1, details)


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What receivers answer meanwhile."""
    answers: list[str] = []
    log, handler = logging.getLogger("fencepost.notify"), logging.Handler()
    handler.emit = lambda record: answers.append(record.getMessage())  # type: ignore[method-assign]
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        yield answers
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
