"""`fencepost demo`: three replicas, live, while their leader is killed."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import click

from fencepost.cli.output import console, emit, note
from fencepost.cli.source import json_option
from fencepost.errors import FencepostError

if TYPE_CHECKING:
    from fencepost.demo.show import Cluster, View


@click.command()
@click.option("--seconds", type=click.FloatRange(6, 3600), help="End by itself; default: Ctrl-C ends it.")
@click.option(
    "--replicas", type=click.IntRange(2, 5), default=3, show_default=True, help="How many processes."
)
@click.option("--keep", is_flag=True, help="Keep the folder with the database and the logs.")
@json_option
def demo(seconds: float | None, replicas: int, keep: bool, as_json: bool) -> int:
    """Show a cluster that loses its leader: real processes on one SQLite file, in a temporary folder.

    Exits 0 only if every fire that was due is accounted for once and nothing ran twice. Ctrl-C stops all
    replicas gracefully, again at once.
    """
    if sys.platform == "win32":
        raise FencepostError("the demo shares a SQLite file between processes, which needs Linux or macOS")
    from fencepost.demo.show import Cluster, temporary_folder

    with temporary_folder(keep) as folder:
        show = Cluster(folder.path, _view(replicas, seconds, as_json), seconds, count=replicas)
        try:
            code = _played(show, keep, as_json)
            folder.keep = keep or code == 1
        except BrokenPipeError:  # nobody reads on, and nothing is wrong
            raise
        except Exception:
            folder.keep = True
            raise
        finally:
            if folder.keep:
                note(f"The database and the replicas' logs are in {folder.path}")
        return code


def _played(show: Cluster, keep: bool, as_json: bool) -> int:
    from fencepost.demo import summary
    from fencepost.demo.show import Interrupted

    try:
        account = show.run()
    except Interrupted:
        note("Interrupted: all replicas were killed.")
        return 130
    if as_json:
        emit(summary.shape(account, show.store_url, keep))
    else:
        summary.tell(account, show.store_url, keep)
    if not account.is_right:
        return 1
    return 130 if show.interrupted_by == signal.SIGINT else 0


def _view(replicas: int, seconds: float | None, as_json: bool) -> View:
    from fencepost.demo.lines import Lines
    from fencepost.demo.screen import Screen
    from fencepost.demo.words import intro

    screen = console()
    if as_json or not screen.is_terminal or screen.is_dumb_terminal:
        return Lines(sys.stderr if as_json else sys.stdout, intro(replicas))
    return Screen(screen, intro(replicas), seconds)
