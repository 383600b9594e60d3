"""The live view, made for 100 columns and 30 lines; more lines show more fires."""

from __future__ import annotations

from itertools import islice

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from fencepost.cli.output import STYLES
from fencepost.demo import words
from fencepost.demo.director import Stage
from fencepost.demo.watch import Picture, Seen, Watch, name_of
from fencepost.model import FireRecord, State

PAST = 2
"""Lines of what has happened."""
OTHER_LINES = 16
"""All but the introduction and the fires."""
MOST_FIRES = 40
WIDE = 95
"""Columns from which on there is room to say what the jobs are."""
REPLICA_ROWS = len(words.JOBS)
"""They stand beside each other."""


class Screen:
    def __init__(self, console: Console, intro: str, seconds: float | None) -> None:
        self._console = console
        self._intro = intro
        self._seconds = seconds
        self._live = Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Screen:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def draw(self, stage: Stage, watch: Watch) -> None:
        watch.news.clear()
        if watch.picture is not None:
            self._live.update(self.frame(stage, watch, watch.picture), refresh=True)

    def frame(self, stage: Stage, watch: Watch, picture: Picture) -> RenderableType:
        intro = Text(self._intro, "dim")
        other = OTHER_LINES + len(intro.wrap(self._console, self._console.width))
        return Group(
            self.heading(stage, picture),
            intro,
            Text(),
            story(stage),
            self._cast(picture, stage),
            Text(),
            fires(picture, max(3, min(MOST_FIRES, self._console.height - other))),
            _totals(watch),
        )

    def _cast(self, picture: Picture, stage: Stage) -> RenderableType:
        beside = replicas(picture, stage)
        return _side_by_side(beside, _jobs()) if self._console.width >= WIDE else beside

    def heading(self, stage: Stage, picture: Picture) -> RenderableType:
        whole = f" of {self._seconds:g}" if self._seconds else ""
        elapsed = min(stage.elapsed, self._seconds or stage.elapsed)
        leader = picture.leader
        leads = f"{leader.name} leads (pid {leader.pid}, term {leader.term})" if leader else "nobody leads"
        title = Text.assemble(
            ("Fencepost demo", "bold"),
            f" · {elapsed:.0f}{whole} s · ",
            (leads, "green" if leader else "red bold"),
        )
        return Rule(title, align="left", style="dim")


def story(stage: Stage) -> RenderableType:
    """What is happening now, above what has happened."""
    past = [text for _, text in stage.told]
    if past and past[-1] == stage.title:
        past.pop()
    lines = [Text.assemble(("▶ ", "bold cyan"), (stage.title, "bold"), no_wrap=True, overflow="ellipsis")]
    for text in reversed(past[-PAST:]):
        lines.append(Text(f"  {text}", "dim", no_wrap=True, overflow="ellipsis"))
    lines += [Text()] * (PAST + 2 - len(lines))
    return Group(*lines)


def _side_by_side(left: RenderableType, right: RenderableType) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 2))
    grid.add_column(ratio=1)
    grid.add_column(width=40)
    grid.add_row(left, right)
    return grid


def replicas(picture: Picture, stage: Stage) -> RenderableType:
    table = columns("replica", "pid", "state", "last beat", "running")
    for column in table.columns[:4]:
        column.min_width = len(str(column.header))
    table.columns[2].min_width = len("leads, term 1")
    table.columns[1].min_width = 7
    table.columns[4].ratio = 1
    shown = picture.replicas[:REPLICA_ROWS]
    for seen in shown:
        running = ", ".join(fire.job_id for fire in seen.running)
        beat = "" if seen.state == "gone" else f"{seen.beat_ago:.1f} s ago"
        table.add_row(seen.name, str(seen.pid), _state(seen, stage), beat, Text(running, "cyan"))
    for _ in range(REPLICA_ROWS - len(shown)):
        table.add_row()
    return table


def _state(seen: Seen, stage: Stage) -> Text:
    if seen.state in ("gone", "dead"):
        return Text(stage.fates.get(seen.name, seen.state), STYLES["dead"])
    if seen.state == "leads":
        return Text(f"leads, term {seen.term}", "bold green")
    return Text(seen.state, STYLES.get(seen.state, ""))


def _jobs() -> RenderableType:
    table = columns("job", "what it shows")
    for job_id, what in words.JOBS.items():
        table.add_row(job_id, Text(what, "dim"))
    return table


def fires(picture: Picture, rows: int) -> RenderableType:
    table = columns("due (UTC)", "job", "what became of it", "replica", "late", "took")
    table.columns[2].ratio = 1
    for column in table.columns[4:]:
        column.justify = "right"
        column.min_width = 7
    # A row of neighbours that share a fate stands where its last one was due.
    newest = sorted(picture.fires, key=lambda fire: fire.last_due, reverse=True)
    shown = list(islice(newest, rows))
    for fire in shown:
        table.add_row(*_fire(fire, picture))
    for _ in range(rows - len(shown)):
        table.add_row()
    return table


def _fire(fire: FireRecord, picture: Picture) -> tuple[RenderableType, ...]:
    text = words.outcome(fire, picture.now)
    style = "yellow" if fire.state is State.WAITING else STYLES.get(fire.state.value, "")
    took = "" if fire.state is State.LOST else words.took(fire)
    return (
        f"{fire.last_due:%H:%M:%S}",
        fire.job_id,
        Text(text, style),
        name_of(fire.replica),
        words.late(fire),
        took,
    )


def _totals(watch: Watch) -> RenderableType:
    counts = watch.counts
    ran = counts["succeeded"] + counts["failed"]
    text = f"so far: {ran} ran, {counts['retries']} retried"
    for state in ("skipped", "missed", "lost"):
        text += f", {counts[state]} {state}"
    return Text(f"{text}    (Ctrl-C ends it)", "dim")


def columns(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    for name in names:
        table.add_column(name, no_wrap=True, overflow="ellipsis", header_style="dim underline")
    return table
