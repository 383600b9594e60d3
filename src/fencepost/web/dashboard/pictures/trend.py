"""How long the runs of a job took, and how late they began, over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo

from markupsafe import Markup

from fencepost.insight.pictures.trends import Point, Trend
from fencepost.web.dashboard.pictures.axis import axis, grid, share
from fencepost.web.dashboard.pictures.svg import element, joined, number, percent, picture, titled
from fencepost.web.dashboard.render import length_of

PANEL, BETWEEN = 90, 22
SMALLEST = 0.001
"""Seconds: below a millisecond all are alike."""

Value = Callable[[Point], float | None]


def trend_picture(trend: Trend, tz: tzinfo, misfire_seconds: float) -> Markup:
    since, until = trend.points[0].due_at, trend.now
    if since >= until:
        since = trend.points[0].due_at.replace(microsecond=0)
    took = _panel(trend.points, lambda point: point.took_seconds, since, until, "took")
    late = _panel(trend.points, lambda point: point.late_seconds, since, until, "started late by")
    usual = trend.usual_seconds
    label = f"{len(trend.points)} runs" + (f", usually {length_of(usual)}" if usual is not None else "")
    lines = grid(since, until, tz, 2 * PANEL + BETWEEN)
    below = element("svg", axis(since, until, trend.now, tz), y=2 * PANEL + BETWEEN + 2, overflow="visible")
    second = element("svg", late, y=PANEL + BETWEEN, overflow="visible")
    return picture([lines, took, second, below], 2 * PANEL + BETWEEN + 20, label)


def _panel(points: Sequence[Point], value: Value, since: datetime, until: datetime, name: str) -> Markup:
    known = [(point, found) for point in points if (found := value(point)) is not None]
    most = max((found for _, found in known), default=1.0)
    scale = Scale(most)
    marks = [_mark(point, found, share(point.due_at, since, until), scale, name) for point, found in known]
    base = element("line", x1="0", x2="100%", y1=PANEL, y2=PANEL, class_="axis")
    top = element("text", f"{name} {length_of(max(most, SMALLEST))}", x=2, y=10)
    return joined([base, *marks, top])


class Scale:
    """By the logarithm: milliseconds and hours fit one picture."""

    def __init__(self, most: float) -> None:
        self._low = math.log(SMALLEST / 2)
        self._span = math.log(max(most, SMALLEST * 2)) - self._low

    def y(self, seconds: float) -> float:
        place = (math.log(max(seconds, SMALLEST)) - self._low) / self._span
        return PANEL - max(0.02, place) * (PANEL - 16)


def _mark(point: Point, seconds: float, place: float, scale: Scale, name: str) -> Markup:
    y = scale.y(seconds)
    slow = ", slower than usual" if point.slow and name == "took" else ""
    title = f"{point.key}: {point.state}, {name} {length_of(seconds)}{slow}"
    x = percent(place)
    stem = element("line", x1=x, x2=x, y1=number(y), y2=PANEL, class_="grid")
    if point.state == "failed":
        dot = element(
            "svg",
            element("path", d="M-3-3l6 6M3-3l-6 6", class_="mark f-failed"),
            x=x,
            y=number(y),
            overflow="visible",
        )
    elif point.state == "lost":
        dot = element(
            "svg",
            element("path", d="M0-4l4 4-4 4-4-4Z", class_="mark f-lost"),
            x=x,
            y=number(y),
            overflow="visible",
        )
    else:
        hollow = " mark" if slow else ""
        dot = element(
            "circle", cx=x, cy=number(y), r=2.5 if not slow else 3.5, class_=f"f-{point.state}{hollow}"
        )
    return titled(title, stem + dot)
