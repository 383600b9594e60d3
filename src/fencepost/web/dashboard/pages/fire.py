"""One fire: what became of it in a sentence, its attempts, phases, output, error and values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from fencepost.insight.chains import trace_of
from fencepost.insight.sentences import Scene, of_fire
from fencepost.insight.views.shapes import whole_fire_shape
from fencepost.insight.views.tracebacks import folded, without_repetition
from fencepost.insight.visible import VisibleStore
from fencepost.model import FireRecord, State, job_of
from fencepost.store.base import FireQuery
from fencepost.web.dashboard.page import Page
from fencepost.web.dashboard.pictures.gantt import gantt, phases_of
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.dashboard.zones import zone_of
from fencepost.web.endpoint import stored_fire

DONE = {
    "triggered": "The fire was added; a replica with a free slot takes it.",
    "cancelled": "The end of this fire was asked for.",
    "retried": "A new fire repeats the earlier one.",
}


@dataclass(frozen=True)
class Rung:
    """One attempt."""

    number: int
    token: int
    replica: str
    outcome: str
    started_at: datetime | None
    finished_at: datetime | None
    took: float | None
    error: str | None


async def show(view: View, store: VisibleStore) -> Page:
    key = view.names["key"]
    fire = await stored_fire(store, key)
    cluster = await view.web.scheduler.reader.cluster()
    now, job_id = cluster.now, job_of(key)
    records, history = await store.jobs([job_id]), await store.history(job_id)
    record = records[0] if records else None
    others = await store.find_fires(FireQuery(key=fire.refers_to)) if fire.refers_to else ()
    sentence = of_fire(
        Scene(cluster.roster, record, history), fire, others[0] if others else None, fire.due_at
    )
    phases = phases_of(fire, now, blocking_phases(view, job_id))
    shape = whole_fire_shape(fire)
    main = rendered(
        "fire.html",
        view,
        now,
        fire=shape,
        record=record,
        zone=zone_of(record.job.trigger) if record else None,
        sentence=sentence,
        verdict=fire.state.value,
        rungs=rungs_of(fire, now),
        trace=await trace_of(store, record, fire) if record else [],
        phases=phases,
        gantt=gantt(phases),
        traceback=coloured(folded(fire.error)) if fire.error and "\n" in fire.error.strip() else "",
        output=without_repetition(fire.output, fire.error) if fire.output else "",
        took=_took(fire, now),
        pipeline=_pipeline(fire),
        replica_state=cluster.standing.get(fire.replica or ""),
        may_cancel=view.may_operate and not fire.state.final and not _is_planned(fire, now),
        may_retry=view.may_operate and fire.state.final and record is not None,
        done=DONE.get(view.asked("done"), ""),
    )
    return Page(key, main, "Fires")


def rungs_of(fire: FireRecord, now: datetime) -> list[Rung]:
    """Oldest first. The attempt that runs is the last one; of many the first are not kept."""
    runs = fire.started_at is not None and fire.token not in {0, *(each.token for each in fire.attempts)}
    first = max(1, fire.attempt - len(fire.attempts) + (0 if runs else 1))
    rungs = [
        Rung(
            number,
            each.token,
            each.replica,
            each.outcome,
            each.started_at,
            each.finished_at,
            (each.finished_at - each.started_at).total_seconds(),
            each.error,
        )
        for number, each in enumerate(fire.attempts, start=first)
    ]
    if not runs:
        return rungs
    state, replica = fire.state.value, fire.replica or ""
    times = (fire.started_at, fire.finished_at, _took(fire, now))
    return [*rungs, Rung(first + len(rungs), fire.token, replica, state, *times, None)]


def blocking_phases(view: View, job_id: str) -> frozenset[str]:
    """As the code says, where it is declared here."""
    function = view.web.scheduler.function_of(job_id)
    phases = getattr(function, "phases", ())
    return frozenset(phase.name for phase in phases if getattr(phase, "blocking", False))


def coloured(traceback: str) -> Markup:
    """The exception stands out, folded frames step back."""
    lines = traceback.splitlines()
    marked = []
    for place, line in enumerate(lines):
        if place == len(lines) - 1:
            marked.append(Markup('<span class="raised">{}</span>').format(line))
        elif line.startswith("  … "):
            marked.append(Markup('<span class="frame">{}</span>').format(line))
        else:
            marked.append(escape(line))
    return Markup("\n").join(marked)


def _took(fire: FireRecord, now: datetime) -> float | None:
    if fire.started_at is None:
        return None
    return max(0.0, ((fire.finished_at or now) - fire.started_at).total_seconds())


def _pipeline(fire: FireRecord) -> dict[str, Any] | None:
    shown = (fire.progress or {}).get("pipeline")
    return dict(shown) if isinstance(shown, dict) else None


def _is_planned(fire: FireRecord, now: datetime) -> bool:
    return fire.state is State.PENDING and fire.scheduled and fire.due_at > now
