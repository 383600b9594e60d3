"""One route of the API: what it takes, what it gives, and how it is answered."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fencepost.insight.visible import VisibleStore
from fencepost.model import FireRecord, JobRecord, job_of
from fencepost.model.traces import clean_traceparent
from fencepost.model.values import json_text
from fencepost.runs.tracing import given_traceparent
from fencepost.store.base import FireQuery, Readable
from fencepost.store.rereading import readable_job
from fencepost.web.access import Caller, Role
from fencepost.web.access_log import CALLER
from fencepost.web.gate import PROBES
from fencepost.web.models import ID, KEY
from fencepost.web.prepared import Prepared
from fencepost.web.problems import Problem

if TYPE_CHECKING:
    from fencepost.web.app import WebApp

Shape = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """A request that fits."""

    web: WebApp
    request: Request
    path: Mapping[str, str]
    query: Any
    body: Any

    @property
    def caller(self) -> Caller:
        found: Caller = self.request.scope[CALLER]
        return found

    async def read(self, work: Callable[[VisibleStore], Awaitable[T]]) -> T:
        """Read this from the store, as far as the caller sees it."""
        return await self.web.desk.read(lambda store: work(VisibleStore(store, self.caller.sight)))

    async def share(self, what: Hashable, work: Callable[[VisibleStore], Coroutine[Any, Any, T]]) -> T:
        """The same, read once within a second for all callers that see the same jobs."""
        return await self.web.desk.share(
            (what, self.caller.jobs), lambda store: work(VisibleStore(store, self.caller.sight))
        )


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    answer: Callable[[Call], Awaitable[Shape | Prepared | Response]]
    gives: type[BaseModel]
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    status: int = 200
    errors: tuple[int, ...] = ()
    """Beside those that every route may answer."""
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers that it uses, with the pattern of their values."""
    acts_on_many: bool = False
    """Whether the endpoint itself logs what it has done."""
    role: Role | None = None
    """The lowest role that may call it. Default: `read` for requests that only read, `operate` for actions."""

    @property
    def needs(self) -> Role:
        return self.role or ("read" if self.method == "GET" else "operate")

    @property
    def summary(self) -> str:
        return (self.answer.__doc__ or "").strip().partition("\n")[0]

    async def respond(self, web: WebApp, request: Request) -> Response:
        self._admit(web, request)
        query = _fitting(self.query, _parameters(request)) if self.query else None
        if self.query is None and request.query_params and self.path not in PROBES:
            raise Problem(422, "this takes no query parameters")
        body = await _body(self.body, request) if self.method != "GET" else None
        given_traceparent.set(clean_traceparent(request.headers.get("traceparent")))
        reply = await self.answer(Call(web, request, request.path_params, query, body))
        if self.method != "GET" and not self.acts_on_many:
            fire = reply.get("key") if isinstance(reply, dict) else None
            job_id = job_of(fire) if fire else request.path_params["id"]
            web.access_log.acted(request, self.answer.__name__, job_id, fire)
        if isinstance(reply, Prepared):
            return reply.response(request)
        if isinstance(reply, Response):
            return reply
        return tagged(request, reply) if self.method == "GET" else JsonAnswer(reply, self.status)

    def _admit(self, web: WebApp, request: Request) -> None:
        """A job that the caller does not see is answered like one that does not exist."""
        caller: Caller | None = request.scope.get(CALLER)
        if caller is None:  # a probe
            return
        if not caller.may(self.needs):
            web.access_log.refused("role", request, f"this takes the role {self.needs}")
            raise Problem(403, f"this takes the role {self.needs}; {caller.name} has the role {caller.role}")
        check_names(web, request, caller)


def check_names(web: WebApp, request: Request, caller: Caller) -> None:
    """Refuse a path that names a job or a fire that cannot be, or that the caller does not see."""
    for name, given in request.path_params.items():
        pattern, missing, job_id = _NAMED[name]
        if not re.fullmatch(pattern, given):
            raise missing(given)
        if job_id is not None and not caller.sees(job_id(given)):
            web.access_log.refused("job", request, "not a job of this token")
            raise missing(given)


def no_job(id: str) -> Problem:
    return Problem(404, f"there is no job {id!r} in the store")


def no_fire(key: str) -> Problem:
    return Problem(404, f"there is no fire {key!r} in the ledger")


async def stored_job(store: Readable, id: str) -> JobRecord:
    if (record := await readable_job(store, id)) is None:
        raise no_job(id)
    return record


async def stored_fire(store: Readable, key: str) -> FireRecord:
    if not (found := await store.find_fires(FireQuery(key=key))):
        raise no_fire(key)
    return found[0]


def no_backfill(name: str) -> Problem:
    return Problem(404, f"there is no backfill {name!r} of this job")


def no_rule(name: str) -> Problem:
    return Problem(404, f"there is no notification rule {name!r} that was made by hand")


_NAMED: Mapping[str, tuple[str, Callable[[str], Problem], Callable[[str], str] | None]] = {
    "id": (ID, no_job, str),
    "key": (KEY, no_fire, job_of),
    "backfill": (ID, no_backfill, None),
    "rule": (ID, no_rule, None),
}
"""What stands in a path: how it is spelled, what is said if there is none, and whose job it is; None: that of the id
beside it, or of none."""


def tagged(request: Request, shape: Shape) -> Response:
    """With an ETag, or 304."""
    return Prepared(shape).response(request)


class JsonAnswer(JSONResponse):
    """Rows of earlier releases may hold what JSON does not have."""

    def render(self, content: Any) -> bytes:
        return json_text(content).encode()


def _parameters(request: Request) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            given[name] = [*(given[name] if isinstance(given[name], list) else [given[name]]), value]
        else:
            given[name] = value
    return given


async def _body(model: type[BaseModel] | None, request: Request) -> Any:
    text = await request.body()
    if model is None:
        if text.strip() not in (b"", b"{}"):
            raise Problem(422, "this takes no body")
        return None
    if not text:
        return _fitting(model, {})
    try:
        body = model.model_validate_json(text)
    except ValidationError as error:
        raise _misfit(error) from None
    if b"NaN" in text or b"Infinity" in text:
        json.loads(text, parse_constant=_refuse_constant)
    return body


def _refuse_constant(name: str) -> None:
    """The parser takes it, JSON does not have it, and we would store null."""
    raise Problem(422, f"the body: {name} is no JSON; send null or a string")


def _fitting(model: type[BaseModel], given: Mapping[str, Any]) -> Any:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise _misfit(error) from None


def _misfit(error: ValidationError) -> Problem:
    errors = [
        {"where": ".".join(map(str, each["loc"])), "problem": each["msg"]}
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
    first = errors[0]
    return Problem(422, f"{first['where'] or 'the body'}: {first['problem']}", errors=errors[:20])
