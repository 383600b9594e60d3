"""Who takes part: a lane for each replica, who led when, and what no replica can run or read."""

from __future__ import annotations

from typing import Any

from fencepost.insight.notices import outbox_shape
from fencepost.insight.pictures.replicas import cluster_lanes
from fencepost.insight.views.unreadable import unreadable_shape
from fencepost.insight.visible import VisibleStore, visible
from fencepost.store.outbox import OutboxQuery
from fencepost.web.dashboard.page import Page
from fencepost.web.dashboard.pictures.axis import axis
from fencepost.web.dashboard.pictures.lanes import replica_picture, term_ribbon
from fencepost.web.dashboard.pictures.svg import element
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.dashboard.windows import SPANS, shown

MOST = 50


async def show(view: View, store: VisibleStore) -> Page:
    reader, sees = view.web.scheduler.reader, store.sight.sees_only
    now = (await reader.cluster()).now
    shows, tz = shown(view, now), view.zones.of()
    found = await cluster_lanes(reader, store.whole, shows.window, sees)
    reading = visible(await reader.recent(), sees)
    window = found.window
    outbox = aside = None
    if not sees:
        outbox = outbox_shape(await store.whole.notices.outbox(OutboxQuery(limit=MOST)))
        aside = outbox_shape(await store.whole.notices.outbox(OutboxQuery(aside=True, limit=MOST)))
    main = rendered(
        "cluster.html",
        view,
        now,
        reading.now,
        shows=shows,
        spans=SPANS,
        rows=[
            (lane, _facts(lane.shape), replica_picture(lane, window, tz, view.fire)) for lane in found.lanes
        ],
        terms=list(reversed(found.terms)),
        ribbon=term_ribbon(found.terms, window, tz),
        axis=element("svg", axis(window.since, window.until, now, tz), width="100%", height=16),
        leader=reading.cluster.leader(),
        orphaned=[entry for entry in reading.entries if entry.orphaned][:MOST],
        conflicts=[entry for entry in reading.entries if entry.rivals][:MOST],
        unreadable=[unreadable_shape(row) for row in reading.unreadable][:MOST],
        outbox=outbox,
        aside=aside,
        versions=sorted({shape["version"] for lane in found.lanes if (shape := lane.shape)}),
    )
    return Page("Cluster", main, "Cluster")


def _facts(shape: dict[str, Any] | None) -> dict[str, Any]:
    """What a replica says of itself; slots and skew only newer ones say."""
    return shape or {"state": "gone", "version": "", "running": [], "tasks": [], "leader": False}
