"""The phases of one run of a pipeline: also of one that runs, and of one that another replica went on with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from markupsafe import Markup

from fencepost.model import FireRecord, State
from fencepost.model.triggers import from_iso
from fencepost.web.dashboard.pictures.svg import element, percent, picture, titled
from fencepost.web.dashboard.render import length_of

ROW, BAR, LEFT = 26, 14, 0.2
SHADES = 5


@dataclass(frozen=True)
class PhaseBar:
    name: str
    outcome: str
    """done, reused, skipped, failed, or running."""
    since: datetime | None
    seconds: float
    attempt: int
    replica: str
    blocking: bool
    error: str | None = None

    @property
    def until(self) -> datetime | None:
        return None if self.since is None else self.since + timedelta(seconds=self.seconds)


def phases_of(fire: FireRecord, now: datetime, blocking: frozenset[str] = frozenset()) -> list[PhaseBar]:
    """From what the run has reported. `blocking`: the phases of which the code says so; of the one that runs the
    report says it."""
    shown = (fire.progress or {}).get("pipeline")
    if not isinstance(shown, Mapping):
        return []
    replicas = {number: each.replica for number, each in enumerate(fire.attempts, start=1)}
    found = [_passed(each, replicas, fire, blocking) for each in shown.get("phases") or ()]
    running = fire.state is State.RUNNING or (not fire.state.final and fire.started_at is not None)
    name, since = shown.get("phase"), shown.get("phase_started_at")
    if running and since and name and name not in {each.name for each in found}:
        begun = from_iso(since)
        blocks = bool(shown.get("blocking")) or name in blocking
        seconds = max(0.0, (now - begun).total_seconds())
        found.append(PhaseBar(name, "running", begun, seconds, fire.attempt, fire.replica or "", blocks))
    return found


def _passed(
    each: Mapping[str, Any], replicas: Mapping[int, str], fire: FireRecord, blocking: frozenset[str]
) -> PhaseBar:
    attempt = int(each.get("attempt") or 1)
    since = from_iso(each["started_at"]) if each.get("started_at") else None
    replica = replicas.get(attempt) or fire.replica or ""
    seconds = float(each.get("seconds") or 0.0)
    return PhaseBar(
        each["name"],
        each["outcome"],
        since,
        seconds,
        attempt,
        replica,
        each["name"] in blocking,
        each.get("error"),
    )


def gantt(phases: Sequence[PhaseBar]) -> Markup:
    timed = [phase for phase in phases if phase.since is not None]
    if not timed:
        return Markup("")
    since = min(phase.since for phase in timed if phase.since)
    until = max(phase.until for phase in timed if phase.until)
    span = max((until - since).total_seconds(), 0.001)
    shades = {
        name: number % SHADES for number, name in enumerate(dict.fromkeys(each.replica for each in timed))
    }
    parts = []
    for row, phase in enumerate(phases):
        top = row * ROW
        parts.append(element("text", phase.name, x=0, y=top + 16, class_="strong"))
        if phase.since is None:
            parts.append(element("text", phase.outcome, x=percent(LEFT), y=top + 16))
            continue
        begin = LEFT + (phase.since - since).total_seconds() / span * (0.92 - LEFT)
        wide = phase.seconds / span * (0.92 - LEFT)
        parts.append(_bar(phase, begin, max(wide, 0.004), top, shades[phase.replica]))
    total = length_of(span)
    return picture(parts, len(phases) * ROW, f"{len(phases)} phases in {total}")


def _bar(phase: PhaseBar, begin: float, wide: float, top: int, shade: int) -> Markup:
    size = {"x": percent(begin), "y": top + 5, "width": percent(wide), "height": BAR, "rx": 2}
    fill = "f-failed" if phase.outcome == "failed" else f"shade{shade}"
    drawn = element("rect", **size, class_=fill + (" pulse" if phase.outcome == "running" else ""))
    if phase.blocking:
        drawn += element("rect", **{**size, "y": top + 3, "height": BAR + 4}, class_="blocking")
    text = length_of(phase.seconds) + (" so far" if phase.outcome == "running" else "")
    text += " · blocks users" if phase.blocking else ""
    text += f" · {phase.outcome}" if phase.outcome not in ("done", "running") else ""
    if wide > 0.2:
        drawn += element("text", text, x=percent(begin + 0.008), y=top + 16, class_="on")
    elif begin + wide > 0.75:
        drawn += element("text", text, x=percent(begin - 0.006), y=top + 16, text_anchor="end")
    else:
        drawn += element("text", text, x=percent(begin + wide + 0.006), y=top + 16)
    return titled(f"{phase.name}: {phase.outcome}, {text}, attempt {phase.attempt} on {phase.replica}", drawn)
