"""The checks that every request passes before it is handled, and the headers that every answer carries.

Bounds on size; who it is; and whether a browser was made to send it by another site. The last needs no tokens in forms:
a browser says where a request comes from (`Sec-Fetch-Site`, `Origin`). A form cannot send JSON to the API, and one that
is sent to a page of the dashboard must say where it comes from.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fencepost.web.access_log import CALLER, AccessLog, Kind
from fencepost.web.auth import Doorkeeper
from fencepost.web.dashboard import paths
from fencepost.web.problems import Problem
from fencepost.web.throttle import Metered, Throttle

MOST_HEADER_BYTES = 32_768
MOST_BODY_BYTES = 131_072
BODY_WITHIN = 30.0
"""Seconds."""
SAFE = ("GET", "HEAD", "OPTIONS")
PROBES = ("/livez", "/readyz", "/health/ready")
"""Open to every client: a platform that sends probes has no token. The answer is only yes, or no and why."""
OPEN = (*PROBES, "/widget.js")
"""The script holds nothing of this installation."""
EVENTS = "/api/v1/events"
QUIET = ("/api/system/pipeline_status", EVENTS)
"""What the widget requests, also before the user has signed in. A browser writes every refusal into its console; with
`?quiet=1` these are answered with 204 instead of 401."""
SHARE = 0.2
"""Of the event loop's time, for all requests together, beside probes and open event streams."""
HTTP = 0.0003
"""Seconds that a request costs the server outside of this application: connection, parsing, closing."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class RequestGate:
    def __init__(self, app: ASGIApp, doorkeeper: Doorkeeper, access_log: AccessLog) -> None:
        self._app = app
        self._doorkeeper = doorkeeper
        self._access_log = access_log
        self._throttle = Throttle(SHARE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request, path = Request(scope), path_of(scope)
        if path not in PROBES:
            try:
                await self._throttle.turn(self._doorkeeper.proxies.client(request))
            except Problem as problem:
                await problem.response()(scope, receive, sealed)
                return
        answer = Metered(self._answer(request, receive, sealed))
        try:
            await answer
        finally:
            if path not in (*PROBES, EVENTS):
                self._throttle.cost(HTTP + answer.seconds)

    async def _answer(self, request: Request, receive: Receive, send: Send) -> None:
        scope = request.scope
        try:
            check_size(request)
            await self._check(request, path_of(scope))
        except Problem as problem:
            await self._refusal(request, problem)(scope, receive, send)
            return
        await self._app(scope, bounded(receive), send)

    async def _check(self, request: Request, path: str) -> None:
        if path not in OPEN and not paths.is_open(path):
            await self._admit(request)
        elif request.method not in SAFE:
            check_origin(request, self._doorkeeper.proxies.host(request))

    def _refusal(self, request: Request, problem: Problem) -> Response:
        """A browser that asks for a page gets a page."""
        if problem.status == 401 and is_quiet(request):
            return Response(status_code=204)
        if not is_for_people(request):
            return problem.response()
        from fencepost.web.dashboard.refusals import refusal_page

        return refusal_page(request, problem, self._doorkeeper.takes_tokens)

    async def _admit(self, request: Request) -> None:
        kind: Kind = "unknown caller"
        try:
            caller = request.scope[CALLER] = await self._doorkeeper.caller(request)
            if request.method in SAFE:
                return
            kind = "role"
            if not caller.may("operate") and path_of(request.scope) not in paths.PERSONAL:
                raise Problem(403, f"this takes the role operate; {caller.name} has the role {caller.role}")
            kind = "browser"
            check_origin(request, self._doorkeeper.proxies.host(request))
        except Problem as problem:
            if not (kind == "unknown caller" and is_quiet(request)):  # any visitor of a page with the widget
                self._access_log.refused(kind, request, problem.detail)
            raise


def is_quiet(request: Request) -> bool:
    """A request without a token that is sent as the widget sends it."""
    return (
        request.query_params.get("quiet") == "1"
        and path_of(request.scope) in QUIET
        and "authorization" not in request.headers
    )


def is_for_people(request: Request) -> bool:
    """A browser asks for a page."""
    return paths.is_page(path_of(request.scope)) and "text/html" in request.headers.get("accept", "")


def check_size(request: Request) -> None:
    if sum(len(name) + len(value) for name, value in request.scope["headers"]) > MOST_HEADER_BYTES:
        raise Problem(431, f"headers may have {MOST_HEADER_BYTES} bytes in all")


def check_origin(request: Request, host: str) -> None:
    """Refuse what another site made a browser send. Programs send neither header."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Problem(403, "requests from other sites are refused")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        raise Problem(403, "requests from other origins are refused")
    kind = request.headers.get("content-type")
    if kind is None:
        return
    media_type = kind.partition(";")[0].strip().lower()
    if media_type == paths.WEB_FORM and paths.is_page(path_of(request.scope)):
        if origin is None and "sec-fetch-site" not in request.headers:
            raise Problem(
                403, "the browser does not say which site this form is of; use the API from programs"
            )
    elif media_type != "application/json":
        raise Problem(415, "send application/json")


def bounded(receive: Receive) -> Receive:
    received, complete = 0, False
    until: float | None = None

    async def counted() -> Message:
        nonlocal received, complete, until
        if until is None:
            until = asyncio.get_running_loop().time() + BODY_WITHIN
        try:
            async with asyncio.timeout_at(None if complete else until):
                message = await receive()
        except TimeoutError:
            raise Problem(408, f"the body has not arrived within {BODY_WITHIN:g} s") from None
        complete = complete or not message.get("more_body", False)
        received += len(message.get("body", b""))
        if received > MOST_BODY_BYTES:
            raise Problem(413, f"a body may have {MOST_BODY_BYTES} bytes")
        return message

    return counted


def path_of(scope: Scope) -> str:
    """Below where this application is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", "").rstrip("/"))
