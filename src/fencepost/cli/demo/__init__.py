"""`fencepost demo`: three replicas, live, while they lose their leader. `app` has their jobs, `stage` does the rest."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from fencepost.cli.demo.stage import LONGEST, Stage
from fencepost.cli.source import json_option

INTRO = (
    "{count} processes share one SQLite file and four scheduled jobs: one leads and plans, all run what is due, each "
    "fire once. Watch what happens when the leader is killed in the middle of a run.\nThe jobs: {jobs}"
)
CYCLE = 30.0
"""Seconds in which everything happens once; a longer demo plays it again."""


@click.command()
@click.option("--seconds", type=click.FloatRange(6, LONGEST), help="End by itself; default: Ctrl-C ends it.")
@click.option("--replicas", type=click.IntRange(2, 5), default=3, show_default=True, help="Processes.")
@click.option("--keep", is_flag=True, help="Keep the folder with the database and the logs.")
@json_option
def demo(seconds: float | None, replicas: int, keep: bool, as_json: bool) -> int:
    """Show a cluster that loses its leader: real processes on one SQLite file, in a temporary folder.

    Exits 0 only if every fire that was due is accounted for once and nothing ran twice. Ctrl-C stops all
    replicas gracefully, again at once.
    """

    async def story(stage: Stage) -> None:
        stage.say(f"Starting {replicas} replicas, each a process of its own.")
        dashboard = stage.start_dashboard()
        await stage.join(replicas)
        stage.say("All have joined.")
        await stage.show_dashboard(dashboard)
        whole = seconds or LONGEST
        acts = [signal.SIGKILL, signal.SIGTERM, None] * max(1, round(whole / CYCLE))
        for number, by in enumerate(acts, start=1):
            await stage.at(whole * number / len(acts))
            if by:
                await stage.lose_leader(by, "report")

    intro = INTRO.format(count=replicas, jobs=Path(__file__).with_name("app.py"))
    command = ("fencepost", "run", "fencepost.cli.demo.app:scheduler")
    environment = {"FENCEPOST_STORE": "sqlite:///fencepost.db"}
    return Stage(intro, story, command, environment, seconds, keep, as_json).run()
