"""The timeline: a lane for each job. A bar is a run, from its start to its end; the thin line before it is how long it
waited after it was due. Other fates have shapes of their own, and what is planned lies to the right of now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from markupsafe import Markup

from fencepost.insight.pictures.lanes import Lane, Mark
from fencepost.insight.pictures.planned import Tick
from fencepost.insight.pictures.window import Window
from fencepost.web.dashboard.pictures.axis import grid, now_line, share
from fencepost.web.dashboard.pictures.svg import element, joined, percent, picture, titled
from fencepost.web.dashboard.render import length_of

HIGH = 28
MIDDLE = HIGH / 2
THINNEST = 0.0012
"""Of the width: what a run of no length is drawn as. The style sheet adds a border of a pixel."""
NARROW = 0.002
"""Bars that are nearer than this are joined."""
ROOM_FOR_TEXT = 0.16
GAP_SHOWN = 0.004
MOST_ALONE = 24
"""Of one fate in one lane that are drawn, named and linked one by one."""
FINE = 10_000
"""Steps across a lane where many are drawn together."""
HEIGHTS = {"failed": 20, "lost": 20, "skipped": 3, "missed": 6, "cancelled": 6, "pending": 6}
RAN = ("succeeded", "failed", "lost", "running")
LINES = ("skipped", "missed", "cancelled")

Link = Callable[..., str]


@dataclass(frozen=True)
class Bar:
    begin: float
    end: float
    state: str
    since: datetime
    until: datetime
    count: int
    mark: Mark
    """The first of those that are joined here."""
    gap: float | None = None
    """Where its fire was due, if it waited visibly."""


def lane_picture(lane: Lane, window: Window, tz: tzinfo, fire: Link, fires: Link) -> Markup:
    by_state: dict[str, list[Bar]] = {}
    for bar in bars(lane.marks, window):
        by_state.setdefault(bar.state, []).append(bar)
    parts = [grid(window.since, window.until, tz, HIGH)]
    for some in sorted(by_state.values(), key=len, reverse=True):  # what is rare is drawn last, and seen
        if len(some) > MOST_ALONE:
            whole = replace(some[0], until=some[-1].until, count=sum(bar.count for bar in some))
            spans = [(bar.begin, bar.end) for bar in some]
            linked = element("a", together(whole.state, spans), href=fires(whole), tabindex=-1)
            parts.append(titled(_title(whole, tz), linked))
            continue
        for bar in some:
            address = fire(bar.mark.key) if bar.count == 1 else fires(bar)
            linked = element("a", _drawn(bar), href=address, tabindex=-1)
            parts.append(titled(_title(bar, tz), linked))
    parts += _planned(lane.planned, window)
    parts.append(now_line(window.since, window.until, window.now, HIGH))
    return picture(parts, HIGH, label(lane), linked=True)


def together(state: str, spans: Sequence[tuple[float, float]]) -> Markup:
    """Many of one fate as one shape: a lane of hundreds costs no more than one of a few."""
    high = HEIGHTS.get(state, 12)
    top = f"{MIDDLE - high / 2:g}"
    path = "".join(
        f"M{begin * FINE:.0f} {top}h{(wide := max(end - begin, THINNEST) * FINE):.0f}v{high}h-{wide:.0f}z"
        for begin, end in spans
    )
    drawn = element("path", d=path, class_=f"f-{state}")
    frame = {"viewBox": f"0 0 {FINE} {HIGH}", "preserveAspectRatio": "none"}
    return element("svg", drawn, **frame, width="100%", height=HIGH)


def _planned(ticks: Sequence[Tick], window: Window) -> list[Markup]:
    if len(ticks) <= MOST_ALONE:
        return [_tick(tick, window) for tick in ticks]
    first, last = (share(tick.due_at, window.since, window.until) for tick in (ticks[0], ticks[-1]))
    kind = "paused-line" if ticks[0].paused else "dotted"
    places = {"x1": percent(first), "x2": percent(last), "y1": MIDDLE, "y2": MIDDLE}
    return [titled("planned, close together", element("line", **places, class_=kind))]


def label(lane: Lane) -> str:
    """What the lane shows, in a line."""
    counts: dict[str, int] = {}
    for mark in lane.marks:
        for state, count in mark.states.items():
            counts[state] = counts.get(state, 0) + count
    text = ", ".join(f"{count} {state}" for state, count in counts.items()) or "nothing ran"
    more = "or more " if not lane.exact else ""
    planned = f"; {len(lane.planned)} planned" if lane.planned else ""
    return f"{lane.job_id}: {more}{text}{planned}"


def bars(marks: Sequence[Mark], window: Window) -> Iterator[Bar]:
    """In the order of time. Neighbours of one fate that touch each other are one bar."""
    last: Bar | None = None
    for mark in marks:
        bar = _bar(mark, window)
        if last is None:
            last = bar
        elif bar.state == last.state and bar.begin - last.end < NARROW and bar.gap is None:
            end = max(last.end, bar.end)
            last = replace(last, end=end, until=bar.until, count=last.count + bar.count)
        else:
            yield last
            last = bar
    if last is not None:
        yield last


def _bar(mark: Mark, window: Window) -> Bar:
    def place(moment: datetime) -> float:
        return min(max(share(moment, window.since, window.until), 0.0), 1.0)

    if mark.state in RAN and mark.started_at is not None:
        since, until = mark.started_at, mark.finished_at or window.now
        several = mark.count > 1 or mark.more
        if several:  # all of the bucket
            since, until = min(since, mark.at), max(until, mark.at + window.width)
            until = (
                min(until, max(window.now, mark.finished_at or window.now)) if since < window.now else until
            )
        due = place(mark.due_at)
        gap = due if place(since) - due > GAP_SHOWN and not several else None
    else:
        since, until, gap = mark.due_at, mark.last_due_at, None
    return Bar(place(since), place(until), mark.state, since, until, mark.count, mark, gap)


def _drawn(bar: Bar) -> Markup:
    state, wide = bar.state, max(bar.end - bar.begin, THINNEST)
    if state in LINES and wide > 2 * THINNEST:
        return _line(bar, wide)
    if state == "missed":
        return element("circle", cx=percent(bar.begin), cy=MIDDLE, r=4, class_="mark hollow f-missed")
    if state == "cancelled":
        return _placed(
            element("rect", x=-4, y=-4, width=8, height=8, class_="mark hollow f-cancelled"), bar.begin
        )
    if state == "skipped":
        return _placed(element("path", d="M-4 0H-1M1 0H4", class_="mark f-skipped"), bar.begin)
    if state in ("waiting", "queued", "pending"):
        return _placed(
            element("path", d="M-4-5H4L0 0ZM0 0 4 5H-4Z", class_=f"mark hollow f-{state}"), bar.begin
        )
    high = {"failed": 20, "lost": 20}.get(state, 12)
    size = {"x": percent(bar.begin), "width": percent(wide), "y": MIDDLE - high / 2, "height": high}
    drawn = element(
        "rect", **size, class_=f"bar-{state} f-{state}" + (" pulse" if state == "running" else "")
    )
    if state == "lost":
        drawn += element(
            "line",
            x1=percent(bar.begin - 0.004),
            x2=percent(bar.end + 0.004),
            y1=MIDDLE,
            y2=MIDDLE,
            class_="cutline",
        )
    if bar.mark.attempt > 1 and bar.count == 1:
        drawn += element("circle", cx=percent(bar.begin), cy=3, r=2, class_="f-missed")
    if bar.gap is not None:
        drawn += element(
            "line", x1=percent(bar.gap), x2=percent(bar.begin), y1=MIDDLE, y2=MIDDLE, class_="gap"
        )
    return drawn


def _line(bar: Bar, wide: float) -> Markup:
    """Many that share one fate: a line, with the reason above it where there is room."""
    places = {"x1": percent(bar.begin), "x2": percent(bar.begin + wide), "y1": MIDDLE + 3, "y2": MIDDLE + 3}
    drawn = element("line", **places, class_=f"dashes f-{bar.state}")
    if bar.state == "missed":
        drawn += element("circle", cx=percent(bar.begin), cy=MIDDLE + 3, r=3.5, class_="mark hollow f-missed")
    if wide > ROOM_FOR_TEXT:
        text = f"{bar.count} {bar.state}" + (f": {bar.mark.reason}" if bar.mark.reason else "")
        drawn += element("text", text, x=percent(bar.begin + 0.005), y=MIDDLE - 2)
    return drawn


def _placed(shape: Markup, place: float) -> Markup:
    """A shape keeps its proportions, wherever it stands."""
    return element("svg", shape, x=percent(place), y=MIDDLE, overflow="visible")


def _tick(tick: Tick, window: Window) -> Markup:
    place = percent(share(tick.due_at, window.since, window.until))
    if tick.paused:
        return _placed(
            element("path", d="M-3 0H3", class_="mark f-planned"),
            share(tick.due_at, window.since, window.until),
        )
    return element("circle", cx=place, cy=MIDDLE, r=3 if not tick.more else 1.8, class_="mark f-planned")


def _title(bar: Bar, tz: tzinfo) -> str:
    mark = bar.mark
    if bar.count > 1:
        text = f"{bar.count} {bar.state}, {_clock(bar.since, tz)} to {_clock(bar.until, tz)}"
        return text + (f"\n{mark.reason}" if mark.reason else "")
    parts = [f"{mark.key}\n{mark.state}"]
    if mark.reason:
        parts.append(mark.reason)
    if mark.late_seconds is not None:
        parts.append(f"{length_of(mark.late_seconds)} late")
    if mark.started_at is not None and mark.finished_at is not None:
        parts.append(f"took {length_of(mark.finished_at - mark.started_at)}")
    if mark.attempt > 1:
        parts.append(f"attempt {mark.attempt}")
    return " · ".join(parts) + (f"\n{mark.error_line}" if mark.error_line else "")


def _clock(moment: datetime, tz: tzinfo) -> str:
    return f"{moment.astimezone(tz):%H:%M:%S}"


def fates_bar(fates: Sequence[tuple[str, int]]) -> Markup:
    """All fires of a window in one bar, by what became of them."""
    total = sum(count for _, count in fates)
    parts, left = [], 0.0
    for state, count in fates:
        wide = count / total
        box = element(
            "rect",
            x=percent(left),
            y=0,
            width=percent(max(wide - 0.001, 0.002)),
            height=12,
            class_=f"f-{state}",
        )
        parts.append(titled(f"{count} {state}", box))
        left += wide
    text = ", ".join(f"{count} {state}" for state, count in fates)
    return element("svg", joined(parts), class_="bar", role="img", aria_label=text, width="100%", height=12)
