"""A square for each day, a column for each week: how many ran, and whether something went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from fencepost.insight.pictures.trends import DayTrend
from fencepost.web.dashboard.pictures.svg import element, picture, titled

CELL, GAP, LEFT, TOP = 13, 3, 30, 16
BAD = ("failed", "lost", "missed")


def calendar(days: Sequence[DayTrend]) -> Markup:
    first = days[0].day
    offset = first.weekday()
    most = max((sum(day.states.values()) for day in days), default=0)
    parts = [
        element("text", name, x=0, y=TOP + (CELL + GAP) * row + CELL - 3)
        for row, name in ((0, "Mon"), (2, "Wed"), (4, "Fri"))
    ]
    month, labelled = "", -3
    for number, day in enumerate(days):
        column, row = divmod(number + offset, 7)
        left, top = LEFT + column * (CELL + GAP), TOP + row * (CELL + GAP)
        if f"{day.day:%b}" != month and column - labelled >= 2:
            month, labelled = f"{day.day:%b}", column
            parts.append(element("text", month, x=left, y=TOP - 5))
        parts.append(_cell(day, left, top, most))
    weeks = (len(days) + offset + 6) // 7
    wide = LEFT + weeks * (CELL + GAP)
    bad = sum(day.states.get(state, 0) for day in days for state in BAD)
    label = f"{len(days)} days, {sum(sum(day.states.values()) for day in days)} fires, {bad} failed, lost or missed"
    return picture(parts, TOP + 7 * (CELL + GAP), label, width=str(wide))


def _cell(day: DayTrend, left: int, top: int, most: int) -> Markup:
    states = day.states
    total, bad = sum(states.values()), sum(states.get(state, 0) for state in BAD)
    counted = ", ".join(f"{count} {state}" for state, count in states.items()) or "nothing was due"
    size = {"x": left, "y": top, "width": CELL, "height": CELL, "rx": 2}
    if bad:
        cell = element("rect", **size, class_=f"bad{level(bad, total)}")
        cell += element("path", d=f"M{left + 4} {top + 4}l5 5m0-5l-5 5", class_="cross")
    else:
        cell = element("rect", **size, class_=f"heat{level(total, most)}")
    return titled(f"{day.day}: {counted}", cell)


def level(count: int, most: int) -> int:
    """0 to 4."""
    return 0 if not count or not most else min(4, 1 + (count * 4 - 1) // most)


def contrast(count: int, least: int, most: int) -> int:
    """0 to 4, by where it lies between the quietest and the busiest; where those hardly differ all are alike."""
    if not count:
        return 0
    return 2 if most < 1.2 * least else 1 + min(3, 4 * (count - least) // max(1, most - least))


def week_map(cells: Mapping[tuple[int, int], int], name: str, kind: str) -> Markup:
    """Hours across, weekdays down: numbers by (weekday, hour)."""
    most, least = max(cells.values(), default=0), min(cells.values(), default=0)
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    parts = [element("text", f"{hour:02}", x=f"{4 + hour * 4}%", y=11) for hour in range(0, 24, 3)]
    for row, day in enumerate(days):
        top = 18 + row * 22
        parts.append(element("text", day, x=0, y=top + 13))
        for hour in range(24):
            count = cells.get((row, hour), 0)
            size = {"x": f"{4 + hour * 4}%", "y": top, "width": "3.8%", "height": 19, "rx": 2}
            shade = contrast(count, least, most)
            drawn = element("rect", **size, class_=f"{kind}{shade}" if shade else "heat0")
            if count:
                drawn += element(
                    "text",
                    str(count) if count < 10_000 else f"{count // 1000}k",
                    x=f"{4 + hour * 4 + 1.9}%",
                    y=top + 13,
                    text_anchor="middle",
                    class_="on wide" if shade > 2 else "strong wide",
                )
            parts.append(titled(f"{day} {hour:02}:00–{hour:02}:59: {count} {name}", drawn))
    total = sum(cells.values())
    return picture(parts, 18 + 7 * 22, f"{total} {name}, by weekday and hour; at most {most} in one hour")
