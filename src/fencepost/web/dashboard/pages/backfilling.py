"""Backfills and skips of a job, as forms."""

from __future__ import annotations

from starlette.requests import Request

from fencepost.errors import FencepostError
from fencepost.insight.views.backfills import backfill_shape
from fencepost.insight.visible import VisibleStore
from fencepost.model import JobRecord
from fencepost.web import backfills, models
from fencepost.web.dashboard.forms import field
from fencepost.web.dashboard.page import Form, Page
from fencepost.web.dashboard.pages.acting import act, checked
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.endpoint import stored_job
from fencepost.web.problems import Problem, problem_of

ACTS = {"pause": backfills.pause, "resume": backfills.resume, "cancel": backfills.cancel}
GIVEN = ("from", "to", "limit", "name")


async def backfill_form(view: View, store: VisibleStore) -> Page:
    return backfill_page(view, await stored_job(store, view.names["id"]))


async def backfill(view: View, request: Request, form: Form) -> str | Page:
    """Start one; or pause, resume or cancel one that is there."""
    id = view.names["id"]
    try:
        what = field(form, "act")
        if what in ACTS:
            await act(
                view, request, f"{what} backfill", ACTS[what], None, id=id, backfill=field(form, "name")
            )
        else:
            await act(view, request, "backfill", backfills.start, _asked(form))
    except (Problem, FencepostError) as error:
        record = await view.read(lambda store: stored_job(store, id))
        return backfill_page(view, record, form, problem_of(error))
    return view.job(id, "backfill")


def _asked(form: Form) -> models.BackfillAsked:
    limit = field(form, "limit") or "1"
    if not limit.isdecimal():
        raise Problem(422, "at once: give a number")
    asked: models.BackfillAsked = checked(
        models.BackfillAsked,
        **{"from": field(form, "from"), "to": field(form, "to") or None},
        limit=int(limit),
        reverse=field(form, "reverse") == "yes",
        only_missing=field(form, "only_missing") == "yes",
        name=field(form, "name") or None,
    )
    return asked


def backfill_page(
    view: View, record: JobRecord, form: Form | None = None, problem: Problem | None = None
) -> Page:
    main = rendered(
        "backfill.html",
        view,
        None,
        id=record.id,
        given={name: field(form or {}, name) for name in GIVEN},
        backfills=[backfill_shape(record.id, each) for each in reversed(record.backfills)],
        wrong=problem.detail if problem else "",
    )
    return Page(f"Backfill {record.id}", main, "Jobs", problem.status if problem else 200)


async def skip_form(view: View, store: VisibleStore) -> Page:
    await stored_job(store, view.names["id"])
    return skip_page(view)


async def skip(view: View, request: Request, form: Form) -> str | Page:
    try:
        undo = field(form, "undo") == "yes"
        asked = checked(models.SkipAsked, at=field(form, "at"), reason=field(form, "reason"), undo=undo)
        await act(view, request, "unskip" if undo else "skip", backfills.skip, asked)
    except (Problem, FencepostError) as error:
        return skip_page(view, form, problem_of(error))
    return view.job(view.names["id"], done="not_skipped" if undo else "skipped")


def skip_page(view: View, form: Form | None = None, problem: Problem | None = None) -> Page:
    id = view.names["id"]
    at, undo = (field(form, "at"), field(form, "undo")) if form else (view.asked("at"), view.asked("undo"))
    given = {"at": at, "undo": undo == "yes", "reason": field(form or {}, "reason")}
    main = rendered("skip.html", view, None, id=id, given=given, wrong=problem.detail if problem else "")
    return Page(f"Skip a fire of {id}", main, "Jobs", problem.status if problem else 200)
