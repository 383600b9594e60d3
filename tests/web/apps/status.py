"""A page with the widget, and a status document that a test writes: a real application, only its data is scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from fencepost import Scheduler
from fencepost.web.endpoint import tagged

PAGE = """<!doctype html>
<html lang="%s">
<head>
  <meta charset="utf-8"><title>Stops</title>
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <style>
    body { font: 16px/1.5 system-ui, sans-serif; margin: 0; }
    nav { display: flex; flex-wrap: wrap; gap: 1rem; align-items: center; justify-content: space-between;
          padding: .75rem 1rem; border-bottom: 1px solid light-dark(#d1d9e0, #3d444d); }
    main { padding: 1rem; } h1 { font-size: 1.1rem; margin: 0; }
  </style>
  <script type="module" src="/fencepost/widget.js"></script>
</head>
<body>
  <nav><h1>Stops</h1>%s</nav>
  <main><p>4,218 stops, 31 problems.</p><button id="work">Review</button></main>
</body>
</html>"""

CSP = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'; img-src data:"
"""Of the host's page. Its own inline style is allowed; the widget needs no permission but the first two."""


def page_with(
    attributes: str, lang: str = "en", elements: str | None = None
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    shown = elements or f"<fencepost-status {attributes}></fencepost-status>"

    async def page(request: Request) -> Response:
        return HTMLResponse(PAGE % (lang, shown), headers={"Content-Security-Policy": CSP})

    return page


def moment(seconds: float = 0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def document(**changes: Any) -> dict[str, Any]:
    """As an idle pipeline gives it."""
    updated = "2026-11-15T02:30:00.000000Z"
    return {
        "job_id": "import",
        "status": "idle",
        "phase": "idle",
        "message": None,
        "blocking_maintenance": False,
        "processed": None,
        "total": None,
        "eta_seconds": None,
        "eta_low_seconds": None,
        "eta_high_seconds": None,
        "run_id": "import@2026-11-15T02:00:00.000000Z",
        "trigger": "scheduled",
        "started_at": None,
        "maintenance_started_at": None,
        "updated_at": updated,
        "finished_at": updated,
        "last_success_at": updated,
        "last_error": None,
        "next_run_at": moment(600),
        "data_updated_at": updated,
        "run_type": "complete",
        "refresh_scope_tables_rewritten": [],
        "refresh_scope_tables_reused": [],
        "now": moment(),
        **changes,
    }


class Script:
    """What the application answers now."""

    def __init__(self) -> None:
        self.document = document()
        self.fails = False
        self.live = True
        self.beats = True
        self.signed_in = True
        self.streams = 0
        self.opened: list[str] = []
        """The queries of all streams so far."""
        self.asked = 0
        self.told = 0
        self.attributes = 'time-zone="Europe/Zurich"'
        self.lang = "en"
        self.elements: str | None = None
        """In place of one element with the attributes."""
        self.ended = False
        web = Scheduler("memory://").asgi(authorize=lambda request: "read")
        self.app = Starlette(
            routes=[
                Route("/", self._page),
                Route("/fencepost/api/system/pipeline_status", self._status),
                Route("/fencepost/api/v1/events", self._events),
                Mount("/fencepost", web),
            ]
        )

    def say(self, **changes: Any) -> None:
        self.document = document(**changes)
        self.told += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)

    async def _page(self, request: Request) -> Response:
        return await page_with(self.attributes, self.lang, self.elements)(request)

    async def _status(self, request: Request) -> Response:
        self.asked += 1
        if not self.signed_in:
            return Response(status_code=204 if request.query_params.get("quiet") == "1" else 401)
        if self.fails:
            return JSONResponse({"detail": "the store does not answer"}, 503)
        return tagged(request, {**self.document, "now": moment()})

    async def _events(self, request: Request) -> Response:
        if self.fails or not self.live:
            return Response(status_code=503)
        self.opened.append(request.url.query)
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[str]:
        told, beaten = self.told, 0
        self.streams += 1
        try:
            yield "retry: 100\n\nevent: hello\ndata: {}\n\n"
            while not self.ended and not self.fails:
                beaten += 1
                if told != self.told:
                    told = self.told
                    yield f"event: fire\ndata: {json.dumps({'job_id': 'import'})}\n\n"
                elif self.beats and beaten % 25 == 0:
                    yield "event: beat\ndata: {}\n\n"
                await asyncio.sleep(0.02)
        finally:
            self.streams -= 1
