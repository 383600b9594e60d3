"""Where there is no terminal: one line per event, to be read in a log."""

from __future__ import annotations

from datetime import datetime
from typing import TextIO

import click

from fencepost.cli.output import printable
from fencepost.demo import words
from fencepost.demo.director import Stage
from fencepost.demo.watch import Watch, name_of
from fencepost.model import FireRecord, State


class Lines:
    def __init__(self, file: TextIO, intro: str) -> None:
        self._file = file
        self._intro = intro
        self._told = 0

    def __enter__(self) -> Lines:
        self.line("Fencepost demo")
        self.line(self._intro)
        self.line("Times are in UTC; the time of a fire is when it was due.")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def draw(self, stage: Stage, watch: Watch) -> None:
        new = stage.number_told - self._told
        self._told = stage.number_told
        for moment, text in list(stage.told)[-new:] if new else ():
            self.line(f"{_time(moment)} *** {text}")
        while watch.news:
            self._fire(watch.news.popleft())

    def _fire(self, fire: FireRecord) -> None:
        if fire.state is State.RUNNING:
            return  # its end tells all; a log is not for watching
        facts = [words.outcome(fire, fire.due_at)]
        if fire.replica and fire.state is not State.LOST:
            facts.append(f"on {name_of(fire.replica)}")
        if late := words.late(fire):
            facts.append(f"started {late} late")
        if fire.state in (State.SUCCEEDED, State.FAILED):
            facts.append(f"took {words.took(fire)}")
        self.line(f"{_time(fire.last_due)}     {fire.job_id:<8} {', '.join(facts)}")

    def line(self, text: str) -> None:
        click.echo(printable(text), file=self._file)


def _time(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}"
