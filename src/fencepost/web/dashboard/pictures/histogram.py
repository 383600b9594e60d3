"""How late runs began: from milliseconds to hours, with the limit after which a fire counts as a misfire."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from fencepost.web.dashboard.pictures.svg import element, number, percent, picture, titled
from fencepost.web.dashboard.render import length_of

HIGH, BELOW = 70, 16


def histogram(buckets: Sequence[tuple[float, int]], misfire_seconds: float) -> Markup:
    most = max((count for _, count in buckets), default=0) or 1
    wide = 1 / len(buckets)
    parts = [element("line", x1="0", x2="100%", y1=HIGH, y2=HIGH, class_="axis")]
    for place, (limit, count) in enumerate(buckets):
        left = place * wide
        name = f"up to {length_of(limit)}" if math.isfinite(limit) else "later"
        high = count / most * (HIGH - 14)
        late = limit > misfire_seconds
        bar = element(
            "rect",
            x=percent(left + wide * 0.12),
            width=percent(wide * 0.76),
            y=number(HIGH - max(high, 1)),
            height=number(max(high, 1)),
            class_="none" if not count else "f-missed" if late else "point",
        )
        if count:
            at = {"x": percent(left + wide / 2), "y": number(HIGH - high - 3), "text_anchor": "middle"}
            bar += element("text", str(count), **at, class_="strong")
        parts.append(titled(f"{name}: {count}", bar))
        if place % 2 == 0 and math.isfinite(limit):
            parts.append(
                element("text", length_of(limit), x=percent(left + wide), y=HIGH + 12, text_anchor="middle")
            )
    edge = sum(limit <= misfire_seconds for limit, _ in buckets) * wide
    parts.append(element("line", x1=percent(edge), x2=percent(edge), y1=0, y2=HIGH, class_="limit"))
    parts.append(
        element("text", "misfire", x=percent(edge + 0.01), y=9, text_anchor="start" if edge < 0.85 else "end")
    )
    counted = ", ".join(
        f"{count} within {length_of(limit)}" for limit, count in buckets if count and math.isfinite(limit)
    )
    return picture(parts, HIGH + BELOW, f"lateness: {counted or 'nothing started'}")
