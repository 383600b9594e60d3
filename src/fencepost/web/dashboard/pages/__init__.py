"""The pages, by their paths."""

from __future__ import annotations

from fencepost.web.dashboard.page import PageRoute
from fencepost.web.dashboard.pages import (
    acting,
    backfilling,
    bulk,
    checks,
    cluster,
    defining,
    find,
    fire,
    fires,
    job,
    jobs,
    load,
    overview,
)

PAGES: tuple[PageRoute, ...] = (
    PageRoute("/", overview.show),
    PageRoute("/jobs", jobs.show),
    PageRoute("/jobs/{id}", job.show),
    PageRoute("/jobs/{id}/run", acting.run_form, act=acting.run, for_operators=True),
    PageRoute("/jobs/{id}/pause", acting.pause_form, act=acting.pause, for_operators=True),
    PageRoute("/jobs/{id}/resume", acting.resume_form, act=acting.resume, for_operators=True),
    PageRoute("/define", defining.new_form, act=defining.new, for_admins=True),
    PageRoute("/jobs/{id}/edit", defining.edit_form, act=defining.edit, for_admins=True),
    PageRoute("/jobs/{id}/remove", defining.remove_form, act=defining.remove, for_admins=True),
    PageRoute("/jobs/{id}/backfill", backfilling.backfill_form, act=backfilling.backfill, for_operators=True),
    PageRoute("/jobs/{id}/skip", backfilling.skip_form, act=backfilling.skip, for_operators=True),
    PageRoute("/fires", fires.show),
    PageRoute("/fires/{key}", fire.show),
    PageRoute("/fires/{key}/cancel", acting.cancel_form, act=acting.cancel, for_operators=True),
    PageRoute("/fires/{key}/retry", acting.retry_form, act=acting.retry, for_operators=True),
    PageRoute("/bulk", bulk.show, act=bulk.act, for_operators=True),
    PageRoute("/load", load.show),
    PageRoute("/cluster", cluster.show),
    PageRoute("/audit", direct=checks.audit),
    PageRoute("/doctor", direct=checks.doctor),
    PageRoute("/history", direct=checks.history),
    PageRoute("/find", find.show),
)
