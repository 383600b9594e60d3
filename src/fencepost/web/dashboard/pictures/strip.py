"""The last outcomes of a job in a row: the height is how long each took, shape and colour are how it ended."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from fencepost.insight.views.words import length
from fencepost.model import FireRecord, State
from fencepost.web.dashboard.pictures.svg import element, number, picture, titled

MOST = 30
WIDE, HIGH, STEP = 180, 22, 6
NOT_RUN = (State.SKIPPED, State.MISSED, State.CANCELLED)


def strip(fires: Sequence[FireRecord]) -> Markup:
    """Newest first, as the ledger gives them; drawn with the newest at the right."""
    shown = list(reversed(fires[:MOST]))
    longest = max((_seconds(fire) for fire in shown), default=0.0)
    begin = WIDE - STEP * len(shown)
    marks = [_mark(fire, begin + STEP * place, longest) for place, fire in enumerate(shown)]
    base = element("path", d=f"M0 {HIGH}.5H{WIDE}", class_="axis")
    return picture([base, *marks], HIGH + 1, summary(shown), width=str(WIDE))


def summary(fires: Sequence[FireRecord]) -> str:
    if not fires:
        return "no run yet"
    counts = Counter(fire.state.value for fire in fires)
    told = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    return f"the last {len(fires)}: {told}"


def _mark(fire: FireRecord, left: int, longest: float) -> Markup:
    state = fire.state.value
    title = f"{fire.key}: {state}" + (f", {fire.reason}" if fire.reason else "")
    if fire.state in NOT_RUN:
        return titled(title, _hollow(fire.state, left))
    took = _seconds(fire)
    title += f", took {length(fire.finished_at - fire.started_at)}" if fire.finished_at and fire.started_at else ""
    # By the logarithm: one run of an hour must not make all others flat.
    share = math.log1p(took) / math.log1p(longest) if longest > 0 else 0.5
    high = max(5.0, share * (HIGH - 2))
    bar = element(
        "rect",
        x=left + 1,
        y=number(HIGH - high),
        width=STEP - 2,
        height=number(high),
        class_=f"f-{state}" + (" pulse" if fire.state is State.RUNNING else ""),
    )
    if fire.state is State.FAILED:
        bar += element("rect", x=left, y=number(HIGH - high), width=STEP, height=3, class_="f-failed")
    if fire.state is State.LOST:
        bar += element("rect", x=left, y=number(HIGH - high / 2 - 1), width=STEP, height=2, class_="none")
    return titled(title, bar)


def _hollow(state: State, left: int) -> Markup:
    if state is State.SKIPPED:
        return element("rect", x=left + 1, y=HIGH - 6, width=STEP - 2, height=2, class_="f-skipped")
    if state is State.MISSED:
        return element("circle", cx=left + 3, cy=HIGH - 5, r=2.2, class_="mark f-missed", fill="none")
    return element("rect", x=left + 1, y=HIGH - 7, width=STEP - 2, height=4, class_="mark f-cancelled")


def _seconds(fire: FireRecord) -> float:
    if fire.started_at is None or fire.finished_at is None:
        return 0.0
    return max(0.0, (fire.finished_at - fire.started_at).total_seconds())
