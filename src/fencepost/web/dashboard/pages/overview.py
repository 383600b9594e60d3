"""Is every fire accounted for, what needs a person, and the timeline of all jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fencepost.insight.board import BoardEntry
from fencepost.insight.pictures.lanes import Lane, lanes
from fencepost.insight.pictures.overview import overview
from fencepost.insight.views.cron_words import schedule_in_words
from fencepost.insight.visible import VisibleStore
from fencepost.model.triggers import iso
from fencepost.store.base import JobPage
from fencepost.web.dashboard.page import Page
from fencepost.web.dashboard.pages.jobs import STATES, fits
from fencepost.web.dashboard.pictures.axis import axis
from fencepost.web.dashboard.pictures.svg import element
from fencepost.web.dashboard.pictures.timeline import Bar, fates_bar, label, lane_picture
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.dashboard.windows import SPANS, shown
from fencepost.web.dashboard.zones import OF_THE_JOB, zone_of

ROWS = 40
NEEDS = 6
FATES = (
    "succeeded",
    "running",
    "waiting",
    "queued",
    "pending",
    "skipped",
    "cancelled",
    "missed",
    "lost",
    "failed",
)


@dataclass(frozen=True)
class OverviewRow:
    id: str
    job: dict[str, Any]
    words: str
    zone: str | None
    picture: Markup
    label: str


async def show(view: View, store: VisibleStore) -> Page:
    reader = view.web.scheduler.reader
    now, as_of = (await reader.cluster()).now, (await reader.recent()).now
    shows = shown(view, now)
    found = await overview(reader, store.whole, shows.window.span, store.sight.sees_only)
    states, q = [state for state in view.several("state") if state in STATES], view.asked("q")

    def wanted(entry: BoardEntry) -> bool:
        return fits(entry, states, ())

    page = JobPage(ROWS, view.asked("after"), q)
    timeline = await lanes(reader, store, shows.window, page, wanted if states else None)
    tz = view.zones.of()
    main = rendered(
        "overview.html",
        view,
        now,
        as_of,
        found=found,
        needs=found.needs[: None if view.asked("needs") == "all" else NEEDS],
        hidden_needs=len(found.needs) + found.more_needs - NEEDS,
        fates=[(state, found.fates[state]) for state in FATES if found.fates.get(state)],
        bar=fates_bar([(state, found.fates[state]) for state in FATES if found.fates.get(state)])
        if found.due
        else "",
        store_name=view.web.scheduler.store_name,
        shows=shows,
        spans=SPANS,
        axis=element("svg", axis(shows.window.since, shows.window.until, now, tz), width="100%", height=16),
        rows=[row_of(view, lane, shows.window) for lane in timeline.items],
        exact=all(lane.exact for lane in timeline.items),
        next=view.same(after=timeline.next) if timeline.next else None,
        first=not view.asked("after"),
        states=states,
        known=STATES,
        q=q,
    )
    return Page("Overview", main, "Overview")


def row_of(view: View, lane: Lane, window: Any) -> OverviewRow:
    trigger = lane.entry.record.job.trigger if lane.entry.record else None
    zone = zone_of(trigger)
    tz = view.zones.of(zone if view.zones.name == OF_THE_JOB else None)

    def fires(bar: Bar) -> str:
        since, until = iso(bar.mark.due_at), iso(max(bar.until, bar.mark.due_at + window.width))
        return view.link("/fires", job=lane.job_id, since=since, until=until, state=bar.state)

    picture = lane_picture(lane, window, tz, view.fire, fires)
    words = schedule_in_words(trigger) if lane.entry.record else ""
    return OverviewRow(lane.job_id, lane.entry.shape, words, zone, picture, label(lane))
