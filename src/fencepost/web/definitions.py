"""Jobs created, changed and removed over HTTP. The work is `scheduler/editing.py`'s.

Two people who change one job do not overwrite each other: a change of a job that exists names the version that its
caller has seen (`If-Match`), and is refused with 412 if another one holds by now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from fencepost.insight.views.shapes import time
from fencepost.insight.visible import Sight, VisibleStore
from fencepost.model.triggers import iso
from fencepost.model.triggers.following import parents_of
from fencepost.model.values import clean_text
from fencepost.scheduler import editing
from fencepost.scheduler.after import CircleOfJobs
from fencepost.scheduler.editing import ChangedMeanwhile, Edit
from fencepost.store.base import NO_JOB, Store
from fencepost.web import answers, models
from fencepost.web.endpoint import Call, Endpoint, JsonAnswer, Shape, stored_job
from fencepost.web.problems import Problem

ETAG = r'^(\*|(W/)?"[A-Za-z0-9.]{1,80}")$'
ANY = "*"
LONGEST_NAME = 500


async def put(call: Call) -> Response:
    """Create a job, or replace its definition. One that exists needs If-Match."""
    return await _defined(call, whole=True)


async def patch(call: Call) -> Response:
    """Change some of a job's definition; null brings a policy back to its default. Needs If-Match."""
    return await _defined(call, whole=False)


async def delete(call: Call) -> Shape:
    """Remove a job: what is due or waits is cancelled, what runs goes on. Needs If-Match."""
    id, seen = call.path["id"], asked_version(call.request.headers)

    async def act(store: Store) -> Shape:
        record = await stored_job(store, id)
        expected = record.fingerprint if seen == ANY else seen
        if expected is None:
            raise _needs_version(id)
        lanes = {lane for replica in (await store.roster()).replicas for lane in replica.targets}
        removed = await editing.remove(store, id, call.caller.name, expected)
        comes_back = record.source == "code" and record.job.lane in lanes
        return {"job_id": id, "removed_at": time(removed.removed_at), "comes_back": comes_back}

    return await call.web.desk.act(act)


async def _defined(call: Call, *, whole: bool) -> Response:
    given: dict[str, Any] = call.body.model_dump(exclude_unset=True)
    reply, version = await define(call, given, asked_version(call.request.headers), whole, call.query.dry_run)
    return JsonAnswer(reply, headers={"ETag": f'"{version}"'})


async def define(
    call: Call, given: Mapping[str, Any], seen: str | None, whole: bool, dry_run: bool
) -> tuple[Shape, str]:
    """What was done, or would be, and the version of the job afterwards."""
    try:
        return await _define(call, call.path["id"], given, seen, whole, dry_run)
    except CircleOfJobs as circle:
        raise CircleOfJobs([call.caller.sight.name(id) for id in circle.jobs]) from None


async def _define(
    call: Call, id: str, given: Mapping[str, Any], seen: str | None, whole: bool, dry_run: bool
) -> tuple[Shape, str]:
    edit = await prepared(call, id, given, whole)
    if seen is None:
        if edit.before is not None and not dry_run:
            raise _needs_version(id)
        seen = edit.version
    elif seen == ANY:
        seen = edit.version
    outcome = edit.outcome
    if dry_run:
        _check(edit, seen)
    else:
        by = clean_text(call.caller.name, LONGEST_NAME)
        outcome = await call.web.desk.act(lambda store: editing.write(store, edit, by, seen))
        call.web.access_log.acted(call.request, "define", id, None)
    version = edit.version if dry_run else edit.job.fingerprint
    shape = edit_shape(edit, call.caller.sight)
    return {**shape, "outcome": _shown(outcome), "dry_run": dry_run, "version": version}, version


async def prepared(call: Call, id: str, given: Mapping[str, Any], whole: bool) -> Edit:
    """On the reading thread: to expand a calendar may take a moment."""

    async def prepare(store: VisibleStore) -> Edit:
        if not whole:
            await stored_job(store, id)
        tasks = None if store.sight.is_whole else await store.tasks()
        edit = await call.web.scheduler.editor.prepare(store.whole, id, given, whole=whole, tasks=tasks)
        _check_parents(edit, store.sight)
        edit_shape(edit, store.sight)
        return edit

    return await call.read(prepare)


def _check_parents(edit: Edit, sight: Sight) -> None:
    """A hidden job is refused like one that does not exist, unless the stored definition names it already."""
    known = parents_of(edit.before.job.trigger) if edit.before is not None else ()
    for parent in parents_of(edit.job.trigger):
        if parent not in known and not sight.sees(parent):
            raise Problem(422, f"trigger: there is no job {parent!r} that this token may see")


def edit_shape(edit: Edit, sight: Sight) -> Shape:
    return {
        "job_id": edit.job.id,
        **sight.definition(edit.difference),
        "fires_before": [iso(fire) for fire in edit.fires_before],
        "fires_after": [iso(fire) for fire in edit.fires_after],
    }


def asked_version(headers: Mapping[str, str]) -> str | None:
    """The version that the caller has seen; `*`: whichever there is; None: it does not say."""
    if headers.get("if-none-match", "").strip() == ANY:
        return NO_JOB
    given = headers.get("if-match")
    if given is None or given.strip() == ANY:
        return None if given is None else ANY
    tag = given.strip().removeprefix("W/").strip('"').partition(".")[0]
    if not tag or "," in given:
        raise Problem(422, 'If-Match: give one ETag of the job, as "1f3a…", or *')
    return tag


def _check(edit: Edit, seen: str) -> None:
    if seen != edit.version:
        raise ChangedMeanwhile(f"job {edit.job.id!r} has been changed since you read it; read it again")


def _shown(outcome: str) -> str:
    """A job that was removed once and comes back is a new one to its caller."""
    return outcome if outcome in ("created", "unchanged") else "changed"


def _needs_version(id: str) -> Problem:
    return Problem(
        428,
        f"job {id!r} exists: send If-Match with the ETag that GET /api/v1/jobs/{id} gave you, so that you change what "
        "you have seen; `If-Match: *` changes whatever there is",
    )


_HEADERS = {"If-Match": ETAG}
_ERRORS = (404, 409, 412, 428)

ENDPOINTS = (
    Endpoint(
        "PUT",
        "/api/v1/jobs/{id}",
        put,
        answers.JobChanged,
        models.ChangeAsked,
        models.JobWritten,
        errors=_ERRORS,
        headers={**_HEADERS, "If-None-Match": r"^\*$"},
        acts_on_many=True,
        role="admin",
    ),
    Endpoint(
        "PATCH",
        "/api/v1/jobs/{id}",
        patch,
        answers.JobChanged,
        models.ChangeAsked,
        models.JobWritten,
        errors=_ERRORS,
        headers=_HEADERS,
        acts_on_many=True,
        role="admin",
    ),
    Endpoint(
        "DELETE",
        "/api/v1/jobs/{id}",
        delete,
        answers.JobRemoved,
        errors=_ERRORS,
        headers=_HEADERS,
        role="admin",
    ),
)
