"""The pages, by their paths."""

from __future__ import annotations

from fencepost.web.dashboard.page import PageRoute
from fencepost.web.dashboard.pages import acting, bulk, find, fire, fires, job, jobs

PAGES: tuple[PageRoute, ...] = (
    PageRoute("/jobs", jobs.show),
    PageRoute("/jobs/{id}", job.show),
    PageRoute("/jobs/{id}/run", acting.run_form, acting.run, for_operators=True),
    PageRoute("/jobs/{id}/pause", acting.pause_form, acting.pause, for_operators=True),
    PageRoute("/jobs/{id}/resume", acting.resume_form, acting.resume, for_operators=True),
    PageRoute("/fires", fires.show),
    PageRoute("/fires/{key}", fire.show),
    PageRoute("/fires/{key}/cancel", acting.cancel_form, acting.cancel, for_operators=True),
    PageRoute("/fires/{key}/retry", acting.retry_form, acting.retry, for_operators=True),
    PageRoute("/bulk", bulk.show, bulk.act, for_operators=True),
    PageRoute("/find", find.show),
)
