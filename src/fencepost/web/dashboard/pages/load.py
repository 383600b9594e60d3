"""When there is much to do, and when things fail: hours across, weekdays down."""

from __future__ import annotations

from fencepost.insight.pictures.load import load_map
from fencepost.insight.visible import VisibleStore
from fencepost.web.dashboard.page import Page
from fencepost.web.dashboard.pictures.heat import week_map
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


async def show(view: View, store: VisibleStore) -> Page:
    sees = store.sight.sees_only
    found = await load_map(view.web.scheduler.reader, store.whole, view.zones.of(), sees)
    planned = {(cell.weekday, cell.hour): cell.count for cell in found.planned}
    failures = {(cell.weekday, cell.hour): cell.count for cell in found.failures}
    main = rendered(
        "load.html",
        view,
        found.now,
        found=found,
        planned=planned,
        failures=failures,
        planned_picture=week_map(planned, "fires", "heat"),
        failures_picture=week_map(failures, "failures", "bad"),
        quietest=sorted(planned, key=lambda cell: planned[cell])[:5],
        days=DAYS,
    )
    return Page("Load", main, "Load")
