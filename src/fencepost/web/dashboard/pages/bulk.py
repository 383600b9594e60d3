"""The same done to several jobs or fires: first a page that names them all, then what became of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from fencepost.errors import FencepostError
from fencepost.insight.visible import VisibleStore
from fencepost.model import job_of
from fencepost.web import api, models
from fencepost.web.dashboard.forms import field
from fencepost.web.dashboard.page import Form, Page
from fencepost.web.dashboard.pages import acting
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.view import View
from fencepost.web.problems import Problem, problem_of

MOST = 100
VERBS = {"run": "Run", "pause": "Pause", "resume": "Resume", "retry": "Retry", "cancel": "Cancel"}
OF_FIRES = ("retry", "cancel")


@dataclass(frozen=True)
class BulkOutcome:
    name: str
    address: str
    said: str
    ok: bool


async def show(view: View, store: VisibleStore) -> Page:
    return confirm(view, view.asked("do"), view.query)


def confirm(view: View, do: str, given: Form, wrong: str = "") -> Page:
    names = chosen(view, do, given)
    main = rendered(
        "bulk.html", view, None, do=do, verb=VERBS[do], names=names, fires=do in OF_FIRES, wrong=wrong
    )
    return Page(
        f"{VERBS[do]} {len(names)}", main, "Fires" if do in OF_FIRES else "Jobs", 422 if wrong else 200
    )


async def act(view: View, request: Request, form: Form) -> Page:
    do = field(form, "do")
    names = chosen(view, do, form)
    if not names:
        return confirm(view, do, form)
    try:
        body = _body(do, form)
    except Problem as problem:
        return confirm(view, do, form, problem.detail)
    outcomes = [await _one(view, request, do, name, body) for name in names]
    main = rendered("bulk_done.html", view, None, do=do, verb=VERBS[do], outcomes=outcomes)
    return Page(f"{VERBS[do]}: done", main, "Fires" if do in OF_FIRES else "Jobs")


def chosen(view: View, do: str, given: Form) -> list[str]:
    if do not in VERBS:
        raise Problem(422, f"choose one of {', '.join(VERBS)}")
    kind, pattern = ("fire", models.KEY) if do in OF_FIRES else ("job", models.ID)
    names = list(dict.fromkeys(given.get(kind, [])))
    if len(names) > MOST:
        raise Problem(422, f"at most {MOST} at once")
    bad = [name for name in names if not re.fullmatch(pattern, name) or not view.caller.sees(job_of(name))]
    if bad:
        raise Problem(404, f"there is no {kind} {bad[0]!r} in the store")
    return names


def _body(do: str, form: Form) -> Any:
    if do == "run":
        return acting.checked(models.TriggerAsked)
    if do == "pause":
        until = field(form, "until") or None
        return acting.checked(models.PauseAsked, reason=field(form, "reason"), until=until)
    if do == "retry":
        return acting.checked(models.RetryAsked, again=field(form, "again") == "yes")
    return None


async def _one(view: View, request: Request, do: str, name: str, body: Any) -> BulkOutcome:
    endpoints = {
        "run": api.trigger,
        "pause": api.pause,
        "resume": api.resume,
        "retry": api.retry,
        "cancel": api.cancel,
    }
    names = {"key": name} if do in OF_FIRES else {"id": name}
    address = view.fire(name) if do in OF_FIRES else view.job(name)
    try:
        reply = await acting.act(
            view, request, "trigger" if do == "run" else do, endpoints[do], body, **names
        )
    except (Problem, FencepostError) as error:
        return BulkOutcome(name, address, problem_of(error).detail, False)
    if "key" in reply:
        return BulkOutcome(name, view.fire(reply["key"]), f"{reply['state']}: {reply['key']}", True)
    return BulkOutcome(name, address, "paused" if reply["paused"] else "resumed", True)
