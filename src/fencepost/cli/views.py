"""Options of commands that show something: in which zone, and again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar
from zoneinfo import available_timezones

import click

from fencepost.cli.output import note
from fencepost.errors import StoreUnavailable, UsageError
from fencepost.insight.views.words import shown_in
from fencepost.model.triggers import zone
from fencepost.settings import did_you_mean

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")

EVERY_SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def tz_option(command: Command) -> Command:
    """`--tz local`, `--tz Europe/Zurich`. JSON stays in UTC."""
    text = "Show times in this zone, or in that of this machine: local. Default: UTC."
    return click.option("--tz", metavar="ZONE", callback=_show_in, expose_value=False, help=text)(command)


def _show_in(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is None:
        return
    try:
        chosen = shown_in.set(None if name == "local" else zone(name))
    except (KeyError, ValueError, OSError):
        hint = did_you_mean(name, available_timezones())
        raise UsageError(
            f"--tz: there is no zone {name!r}{hint or '; give local, UTC or Europe/Zurich'}"
        ) from None
    context.call_on_close(lambda: shown_in.reset(chosen))


watch_option = click.option("--watch", is_flag=True, help="Show it again every 2 s, until Ctrl-C.")


def shown(read: Callable[[], T], show: Callable[[T], None], watch: bool) -> None:
    """Once, or until Ctrl-C. A store that does not answer for a while does not end a watch."""
    if not watch:
        show(read())
        return
    while True:
        try:
            found = read()
        except StoreUnavailable as error:
            note(f"fencepost: {error}")
        else:
            sys.stdout.write(CLEAR if sys.stdout.isatty() else "")
            show(found)
            sys.stdout.flush()
        time.sleep(EVERY_SECONDS)


def not_both(watch: bool, as_json: bool) -> None:
    if watch and as_json:
        raise UsageError("--watch is for people, --json for programs; leave one out")
