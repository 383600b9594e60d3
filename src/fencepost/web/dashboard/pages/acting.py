"""What people do to a job or a fire: a form each, and what it does. The work is the API's own."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.requests import Request

from fencepost.errors import FencepostError
from fencepost.insight.views.shapes import fire_shape
from fencepost.insight.visible import VisibleStore
from fencepost.model import JobRecord, State
from fencepost.web import api, models
from fencepost.web.dashboard.forms import field
from fencepost.web.dashboard.page import Form, Page
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.signatures import arguments, fields_of, filled, whole
from fencepost.web.dashboard.view import View
from fencepost.web.endpoint import Call, stored_fire, stored_job
from fencepost.web.problems import Problem, problem_of

# --- run ------------------------------------------------------------------------------------------------


async def run_form(view: View, store: VisibleStore) -> Page:
    return run_page(view, await stored_job(store, view.names["id"]))


async def run(view: View, request: Request, form: Form) -> str | Page:
    record = await view.read(lambda store: stored_job(store, view.names["id"]))
    fields = fields_of(view.web.scheduler, record)
    try:
        args = whole(form) if fields is None else arguments(fields, form)
        if_active = "refuse" if field(form, "if_active") == "refuse" else "queue"
        asked = checked(models.TriggerAsked, args=args, if_active=if_active)
        fire = await act(view, request, "trigger", api.trigger, asked)
    except (Problem, FencepostError) as error:
        return run_page(view, record, form, problem_of(error))
    return view.fire(fire["key"], done="triggered")


def run_page(view: View, record: JobRecord, form: Form | None = None, problem: Problem | None = None) -> Page:
    fields = fields_of(view.web.scheduler, record)
    if fields is not None and form is not None:
        fields = filled(fields, form)
    given = form.get("args", [""])[0] if form is not None else None
    main = rendered(
        "run.html",
        view,
        None,
        id=record.id,
        fields=fields,
        args=dict(record.job.args),
        given=given,
        wrong=problem.detail if problem else "",
        refuse=form is not None and field(form, "if_active") == "refuse",
    )
    return Page(f"Run {record.id}", main, "Jobs", problem.status if problem else 200)


# --- pause and resume -------------------------------------------------------------------------------------


async def pause_form(view: View, store: VisibleStore) -> Page:
    await stored_job(store, view.names["id"])
    return pause_page(view, view.names["id"])


async def pause(view: View, request: Request, form: Form) -> str | Page:
    id = view.names["id"]
    try:
        asked = checked(models.PauseAsked, reason=field(form, "reason"), until=field(form, "until") or None)
        await act(view, request, "pause", api.pause, asked)
    except (Problem, FencepostError) as error:
        return pause_page(view, id, form, problem_of(error))
    return view.job(id, done="paused")


def pause_page(view: View, id: str, form: Form | None = None, problem: Problem | None = None) -> Page:
    given = {name: field(form or {}, name) for name in ("reason", "until")}
    wrong = problem.detail if problem else ""
    main = rendered("pause.html", view, None, id=id, given=given, wrong=wrong)
    return Page(f"Pause {id}", main, "Jobs", problem.status if problem else 200)


async def resume_form(view: View, store: VisibleStore) -> Page:
    """For users who open the address directly, or whose browser repeats the request."""
    record = await stored_job(store, view.names["id"])
    now = (await view.web.scheduler.reader.cluster()).now
    pause = record.paused_at(now)
    main = rendered("resume.html", view, now, id=record.id, pause=pause)
    return Page(f"Resume {record.id}", main, "Jobs")


async def resume(view: View, request: Request, form: Form) -> str | Page:
    await act(view, request, "resume", api.resume, None)
    return view.job(view.names["id"], done="resumed")


# --- cancel and retry -------------------------------------------------------------------------------------


async def cancel_form(view: View, store: VisibleStore) -> Page:
    return await _fire_form(view, store, "Cancel")


async def cancel(view: View, request: Request, form: Form) -> str | Page:
    await act(view, request, "cancel", api.cancel, None)
    return view.fire(view.names["key"], done="cancelled")


async def retry_form(view: View, store: VisibleStore) -> Page:
    return await _fire_form(view, store, "Retry")


async def retry(view: View, request: Request, form: Form) -> str | Page:
    asked = checked(models.RetryAsked, again=field(form, "again") == "yes")
    fire = await act(view, request, "retry", api.retry, asked)
    return view.fire(fire["key"], done="retried")


async def _fire_form(view: View, store: VisibleStore, what: str) -> Page:
    key = view.names["key"]
    fire = await stored_fire(store, key)
    now = (await view.web.scheduler.reader.cluster()).now
    again = fire.state is State.SUCCEEDED
    main = rendered(
        f"{what.lower()}.html", view, now, fire=fire_shape(fire), final=fire.state.final, again=again
    )
    return Page(f"{what} {key}", main, "Fires")


# --- helpers ------------------------------------------------------------------------------------------------


async def act(view: View, request: Request, name: str, endpoint: Any, body: Any, **names: str) -> Any:
    """As the API does it: with the caller's name in the ledger and in the log."""
    path = names or dict(view.names)
    reply = await endpoint(Call(view.web, request, path, None, body))
    fire = reply.get("key")
    job_id = reply.get("job_id") or path.get("id", "")
    view.web.access_log.acted(request, name, job_id, fire)
    return reply


def checked(model: Any, **values: Any) -> Any:
    """The same bounds as those of the API."""
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Problem(422, f"{where}: {first['msg']}") from None
