"""The cluster over time: a lane for each replica with its runs, and a ribbon of who led."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo

from markupsafe import Markup

from fencepost.insight.pictures.replicas import ReplicaLane, Stint, Term
from fencepost.insight.pictures.window import Window
from fencepost.web.dashboard.pictures.axis import grid, now_line, share
from fencepost.web.dashboard.pictures.svg import element, percent, picture, titled
from fencepost.web.dashboard.pictures.timeline import HEIGHTS, HIGH, MIDDLE, MOST_ALONE, THINNEST, together
from fencepost.web.dashboard.render import length_of

RIBBON = 24
SHADES = 5
KNOWN = ("succeeded", "failed", "lost", "running", "cancelled")


def replica_picture(lane: ReplicaLane, window: Window, tz: tzinfo, fire: Callable[[str], str]) -> Markup:
    by_state: dict[str, list[Stint]] = {}
    for stint in lane.stints:
        by_state.setdefault(stint.outcome if stint.outcome in KNOWN else "waiting", []).append(stint)
    parts = [grid(window.since, window.until, tz, HIGH)]
    for state, stints in sorted(by_state.items(), key=lambda each: -len(each[1])):
        spans = [_span(stint, window) for stint in stints]
        if len(stints) > MOST_ALONE:
            runs = sum(stint.count for stint in stints)
            parts.append(titled(f"{runs} {state}", together(state, spans)))
            continue
        for stint, span in zip(stints, spans, strict=True):
            shape = element("a", _box(state, *span), href=fire(stint.key), tabindex=-1)
            parts.append(titled(_title(stint), shape))
    parts.append(now_line(window.since, window.until, window.now, HIGH))
    runs = sum(stint.count for stint in lane.stints)
    return picture(parts, HIGH, f"{lane.replica}: {runs} runs", linked=True)


def _span(stint: Stint, window: Window) -> tuple[float, float]:
    begin = max(0.0, share(stint.started_at, window.since, window.until))
    return begin, min(1.0, share(stint.finished_at or window.now, window.since, window.until))


def _box(state: str, begin: float, end: float) -> Markup:
    high = HEIGHTS.get(state, 12)
    size = {"x": percent(begin), "width": percent(max(end - begin, THINNEST)), "height": high}
    animated = " pulse" if state == "running" else ""
    return element("rect", **size, y=MIDDLE - high / 2, class_=f"bar-{state} f-{state}{animated}")


def _title(stint: Stint) -> str:
    took = f", took {length_of(stint.finished_at - stint.started_at)}" if stint.finished_at else ""
    text = f"{stint.key}: {stint.outcome}, token {stint.token}{took}"
    return f"{stint.count} runs, among them {text}" if stint.count > 1 else text


def term_ribbon(terms: Sequence[Term], window: Window, tz: tzinfo) -> Markup:
    replicas = list(dict.fromkeys(term.replica for term in terms))
    parts = [grid(window.since, window.until, tz, RIBBON)]
    for term in terms:
        begin = max(0.0, share(term.since, window.since, window.until))
        end = min(1.0, share(term.until or max(window.now, term.since), window.since, window.until))
        if end <= 0 or begin >= 1:
            continue
        shade = replicas.index(term.replica) % SHADES
        size = {
            "x": percent(begin),
            "width": percent(max(end - begin - 0.001, THINNEST)),
            "y": 4,
            "height": 16,
        }
        box = element("rect", **size, rx=2, class_=f"shade{shade}")
        if end - begin > 0.05:
            box += element("text", f"term {term.number}", x=percent(begin + 0.005), y=16, class_="on")
        parts.append(titled(f"term {term.number}: {term.replica}", box))
    parts.append(now_line(window.since, window.until, window.now, RIBBON))
    return picture(
        parts,
        RIBBON,
        ", ".join(f"term {term.number}: {term.replica}" for term in terms) or "no term is on record",
    )
