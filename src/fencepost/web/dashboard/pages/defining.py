"""Forms that define a job: new, changed, removed. What a change does is shown before it is made."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from fencepost.errors import FencepostError, UsageError
from fencepost.insight.visible import VisibleStore
from fencepost.model import JobRecord
from fencepost.model.job_fields import shown_fields
from fencepost.scheduler.declare import POLICIES
from fencepost.scheduler.editing import ChangedMeanwhile, changed_meanwhile
from fencepost.scheduler.editing import remove as remove_job
from fencepost.scheduler.written import TRIGGERS
from fencepost.store.base import NO_JOB
from fencepost.web.dashboard.forms import field
from fencepost.web.dashboard.page import Form, Page
from fencepost.web.dashboard.render import rendered
from fencepost.web.dashboard.signatures import LONGEST, parsed
from fencepost.web.dashboard.view import View
from fencepost.web.definitions import define
from fencepost.web.endpoint import Call, Shape, check_names, stored_job
from fencepost.web.problems import Problem, problem_of

KEEP, NONE = "keep", "none"
TEXTS = ("overlap", "timeout", "owner", "description")
CHOICES = {"misfire": ("latest", "all", "skip"), "after_crash": ("record", "rerun")}
SHOWN = (*TEXTS, *CHOICES, "priority", "tags", "args")
"""What has a field of its own; all other policies are given as JSON."""


async def new_form(view: View, store: VisibleStore) -> Page:
    return form_page(view, await _tasks(store), None, {"kind": "cron", "version": NO_JOB})


async def edit_form(view: View, store: VisibleStore) -> Page:
    record = await stored_job(store, view.names["id"])
    return form_page(view, await _tasks(store), record, values_of(record))


async def new(view: View, request: Request, form: Form) -> str | Page:
    return await _sent(view, request, form, field(form, "id"), whole=True)


async def edit(view: View, request: Request, form: Form) -> str | Page:
    return await _sent(view, request, form, view.names["id"], whole=False)


async def _sent(view: View, request: Request, form: Form, id: str, *, whole: bool) -> str | Page:
    """The first time what would change is shown; then the same form is sent once more, to be saved."""

    async def read(store: VisibleStore) -> tuple[list[str], JobRecord | None]:
        return await _tasks(store), None if whole else await stored_job(store, id)

    tasks, record = await view.read(read)
    saves, shown = field(form, "do") == "save", None
    try:
        if not view.caller.sees(id):
            raise Problem(404, f"job {id!r} would not be one of yours")
        call = Call(view.web, request, {"id": id}, None, None)
        words = words_of(form)
        shown, _ = await define(call, words, field(form, "version") or NO_JOB, whole, dry_run=not saves)
    except ChangedMeanwhile:
        if whole:
            taken = Problem(412, f"there is a job {id!r} already: change that one, or choose another name")
            return form_page(view, tasks, record, values_in(form), problem=taken)
        return await _on_top(view, call, form, words)
    except (Problem, FencepostError) as error:
        return form_page(view, tasks, record, values_in(form), problem=problem_of(error))
    return view.job(id, done="saved") if saves else form_page(view, tasks, record, values_in(form), shown)


async def _on_top(view: View, call: Call, form: Form, words: Mapping[str, Any]) -> Page:
    """Another person was first. What was typed is kept, and compared with what they have made of the job."""

    async def read(store: VisibleStore) -> tuple[list[str], JobRecord, str]:
        record = await stored_job(store, call.path["id"])
        return await _tasks(store), record, await changed_meanwhile(store, record.id)

    tasks, record, who = await view.read(read)
    shown, version = await define(call, words, record.fingerprint, whole=False, dry_run=True)
    problem = Problem(
        412, f"{who.partition(';')[0]}. Nothing was saved. Below is what saving yours would change now."
    )
    return form_page(view, tasks, record, {**values_in(form), "version": version}, shown, problem)


def form_page(
    view: View,
    tasks: list[str],
    record: JobRecord | None,
    values: Mapping[str, str],
    shown: Shape | None = None,
    problem: Problem | None = None,
) -> Page:
    title = "New job" if record is None else f"Change {record.id}"
    rows = max(len(shown["fires_before"]), len(shown["fires_after"])) if shown else 0
    main = rendered(
        "define.html",
        view,
        None,
        title=title,
        job=record.job if record else None,
        schedule=record.job.trigger.describe() if record and record.job.trigger else "when triggered",
        of_code=record is not None and record.source == "code",
        tasks=tasks,
        kinds=[*([KEEP] if record else []), *TRIGGERS, NONE],
        choices=CHOICES,
        given=defaultdict(str, values),
        shown=shown,
        rows=range(rows),
        wrong=problem.detail if problem else "",
    )
    return Page(title, main, "Jobs", problem.status if problem else 200)


def values_of(record: JobRecord) -> dict[str, str]:
    job = record.job
    return {
        "task": job.target,
        "kind": KEEP,
        "args": json.dumps(dict(job.args), ensure_ascii=False) if job.args else "",
        "overlap": str(job.overlap),
        "misfire": job.misfire,
        "after_crash": job.after_crash,
        "timeout": f"{job.timeout.total_seconds():g}" if job.timeout else "",
        "priority": str(job.priority or ""),
        "tags": ", ".join(job.tags),
        **{name: str(value) for name, value in shown_fields(job).items() if name in ("owner", "description")},
        "version": record.fingerprint,
    }


def values_in(form: Form) -> dict[str, str]:
    return {name: values[0] for name, values in form.items()}


def words_of(form: Form) -> dict[str, Any]:
    """The form as the words of a definition."""
    words: dict[str, Any] = {name: field(form, name) or None for name in ("task", *TEXTS, *CHOICES)}
    priority = field(form, "priority")
    words["priority"] = int(priority) if re.fullmatch(r"-?\d{1,3}", priority) else priority or None
    words["tags"] = [tag.strip() for tag in field(form, "tags").split(",") if tag.strip()]
    words["args"] = _json_of(form, "args")
    kind, text = field(form, "kind"), field(form, "schedule")
    if kind == NONE:
        words["trigger"] = None
    elif kind in TRIGGERS:
        words[kind] = [each.strip() for each in text.split(",")] if kind in ("at", "after") else text
        words |= {name: value for name in ("tz", "start", "end") if (value := field(form, name))}
    for name, value in (_json_of(form, "more") or {}).items():
        if name not in POLICIES and name not in ("calendar", "closed", "anchor", "on"):
            raise UsageError(f"other policies: there is no {name!r}")
        words[name] = value
    return words


def _json_of(form: Form, name: str) -> Any:
    text = field(form, name)
    if not text:
        return None
    if len(text) > LONGEST:
        raise UsageError(f"{name}: at most {LONGEST} characters")
    value = parsed(text, name)
    if not isinstance(value, dict):
        raise UsageError(f'{name}: write an object, as {{"user": 42}}')
    return value


# --- remove -------------------------------------------------------------------------------------------------


async def remove_form(view: View, store: VisibleStore) -> Page:
    return _remove_page(view, await stored_job(store, view.names["id"]))


async def remove(view: View, request: Request, form: Form) -> str | Page:
    id = view.names["id"]
    check_names(view.web, request, view.caller)
    try:
        await view.web.desk.act(
            lambda store: remove_job(store, id, view.caller.name, field(form, "version"), field(form, "note"))
        )
    except FencepostError as error:
        record = await view.read(lambda store: stored_job(store, id))
        return _remove_page(view, record, problem_of(error))
    view.web.access_log.acted(request, "remove", id, None)
    return view.link("/jobs", done="removed")


def _remove_page(view: View, record: JobRecord, problem: Problem | None = None) -> Page:
    main = rendered(
        "remove.html",
        view,
        None,
        id=record.id,
        version=record.fingerprint,
        of_code=record.source == "code" or record.origin is not None,
        wrong=problem.detail if problem else "",
    )
    return Page(f"Remove {record.id}", main, "Jobs", problem.status if problem else 200)


# --- helpers ------------------------------------------------------------------------------------------------


async def _tasks(store: VisibleStore) -> list[str]:
    return sorted(await store.tasks())
