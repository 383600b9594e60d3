"""What is shown: who leads, how far the run is, phase by phase, and what became of the runs before it."""

from __future__ import annotations

from typing import TextIO

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fencepost.cli.output import printable
from fencepost.cli.progress import MARKS, RUNNING, current, phases
from fencepost.demo import lines, screen
from fencepost.demo.director import Stage
from fencepost.demo.watch import Picture, Watch
from fencepost.model import FireRecord, State

INTRO = (
    "{replicas} services share one SQLite file. One leads and runs the pipeline, the others stand by. In the middle of "
    "a run the leader is killed, and another goes on from there. In the browser: {web}"
)
BAR = 30
STYLES = {"done": "green", "reused": "dim", "skipped": "dim", "failed": "red"}
OTHER_LINES = 18
"""All but the phases and the runs."""
FEWEST_RUNS = 2


class Screen(screen.Screen):
    def frame(self, stage: Stage, watch: Watch, picture: Picture) -> RenderableType:
        shown = _shown(picture)
        phases_shown = _phases(shown) if shown else Text("No run yet.", "dim")
        left = self._console.height - OTHER_LINES - (len(phases(shown)) if shown else 0)
        return Group(
            self.heading(stage, picture),
            Text(self._intro, "dim"),
            Text(),
            screen.story(stage),
            screen.replicas(picture, stage),
            Text(),
            phases_shown,
            Text(),
            screen.fires(picture, max(FEWEST_RUNS, left)),
            Text("Ctrl-C ends it", "dim"),
        )


class Lines(lines.Lines):
    """A line when a phase has ended, too."""

    def __init__(self, file: TextIO, intro: str) -> None:
        super().__init__(file, intro)
        self._behind: set[tuple[str, str]] = set()

    def draw(self, stage: Stage, watch: Watch) -> None:
        super().draw(stage, watch)
        fire = _shown(watch.picture) if watch.picture else None
        for passed in phases(fire) if fire else ():
            mark = (fire.key if fire else "", passed["name"])
            if mark not in self._behind:
                self._behind.add(mark)
                self.line(f"             {passed['name']}: {passed['outcome']}, {passed['seconds']:.1f} s")


def _shown(picture: Picture) -> FireRecord | None:
    """The run that goes on, or else the last one."""
    ran = [fire for fire in picture.fires if fire.progress]
    return next((fire for fire in ran if not fire.state.final), ran[0] if ran else None)


def _phases(fire: FireRecord) -> RenderableType:
    told = fire.progress or {}
    of_type = told.get("pipeline", {}).get("run_type")
    table = Table.grid(padding=(0, 2))
    table.add_row("", Text(f"run of {fire.due_at:%H:%M:%S}" + (f", {of_type}" if of_type else ""), "bold"))
    for passed in phases(fire):
        outcome = passed["outcome"]
        took = f"{passed['seconds']:.1f} s" if outcome == "done" else outcome
        style = STYLES.get(outcome, "")
        table.add_row(
            Text(MARKS.get(outcome, " "), style), Text(passed["name"], style), "", Text(took, "dim")
        )
    name = current(fire)
    if name is not None and not fire.state.final:
        if fire.state is State.RUNNING:
            bar: RenderableType = ProgressBar(
                total=told.get("total") or 1, completed=told.get("done") or 0, width=BAR
            )
            said = Text(printable(str(told.get("message") or "")))
        else:
            bar, said = "", Text("cut off; it waits for another replica", "yellow")
        table.add_row(Text(RUNNING, "cyan"), Text(name, "bold"), bar, said)
    return table
