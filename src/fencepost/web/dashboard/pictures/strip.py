"""The last outcomes of a job in a row: the height is how long each took, shape and colour are how it ended."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from fencepost.insight.pictures.strips import LENGTH, StripOutcome
from fencepost.web.dashboard.pictures.svg import element, number, picture, titled
from fencepost.web.dashboard.render import length_of

HIGH, STEP = 22, 6
WIDE = STEP * LENGTH
NOT_RUN = ("skipped", "missed", "cancelled", "pending", "queued")


def strip(outcomes: Sequence[StripOutcome]) -> Markup:
    """Oldest first; the newest is drawn at the right."""
    longest = max((each.took_seconds or 0.0 for each in outcomes), default=0.0)
    begin = WIDE - STEP * len(outcomes)
    marks = [_mark(each, begin + STEP * place, longest) for place, each in enumerate(outcomes)]
    base = element("path", d=f"M0 {HIGH}.5H{WIDE}", class_="axis")
    return picture([base, *marks], HIGH + 1, summary(outcomes), width=str(WIDE))


def summary(outcomes: Sequence[StripOutcome]) -> str:
    if not outcomes:
        return "no run yet"
    counts = Counter(each.state for each in outcomes)
    counted = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    return f"the last {len(outcomes)}: {counted}"


def _mark(outcome: StripOutcome, left: int, longest: float) -> Markup:
    state, took = outcome.state, outcome.took_seconds
    title = ", ".join(
        [
            f"{outcome.key}: {state}",
            *([outcome.reason] if outcome.reason else []),
            *([f"{outcome.count} fires"] if outcome.count > 1 else []),
            *([f"took {length_of(took)}"] if took is not None else []),
        ]
    )
    if state in NOT_RUN:
        return titled(title, _hollow(state, left))
    # By the logarithm: one run of an hour must not make all others flat.
    share = math.log1p(took or 0.0) / math.log1p(longest) if longest > 0 else 0.5
    high = max(6.0, share * (HIGH - 2))
    shape = {"x": left + 1, "y": number(HIGH - high), "width": STEP - 2, "height": number(high)}
    bar = element("rect", **shape, class_=f"f-{state}" + (" pulse" if state == "running" else ""))
    if state == "failed":
        bar += element("rect", x=left, y=number(HIGH - high), width=STEP, height=3, class_="f-failed")
    if state == "lost":
        bar += element("rect", x=left, y=number(HIGH - high / 2 - 1), width=STEP, height=2, class_="cut")
    return titled(title, bar)


def _hollow(state: str, left: int) -> Markup:
    if state == "skipped":
        return element("rect", x=left + 1, y=HIGH - 6, width=STEP - 2, height=2, class_="f-skipped")
    if state == "missed":
        return element("circle", cx=left + 3, cy=HIGH - 5, r=2.2, class_="mark f-missed")
    return element("rect", x=left + 1.5, y=HIGH - 7, width=STEP - 3, height=4, class_=f"mark f-{state}")
