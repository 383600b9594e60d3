"""The web app: it shows what was found and how fresh it is, and never runs the pipeline itself.

`python -m stop_sync.web`, or `uvicorn stop_sync.web:app`. Its pages need the database alone: while the store that the
status comes from is away, they are served as ever, and only the label in the navigation says so.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fencepost import FencepostError, Scheduler
from fencepost.web.auth import Role, is_local
from fencepost.web.gate import path_of
from fencepost.web.widget import StatusTag
from stop_sync import pages
from stop_sync.database import Database, NoData
from stop_sync.pipeline import NAME
from stop_sync.settings import Settings

HERE = Path(__file__).parent
STATUS = "/api/system/pipeline_status"
TEXTS = {"running": "Pipeline running in the background"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}

Query = Callable[..., pages.Page]


def app_of(settings: Settings) -> Starlette:
    settings.make_folders()
    scheduler = Scheduler(**settings.scheduling)
    site = Site(settings, StatusTag(scheduler, NAME, time_zone=settings.timezone, texts=TEXTS))
    service = scheduler.asgi(replica=False, authorize=visitor)
    return Starlette(
        routes=[
            Route("/", lambda request: RedirectResponse("stops")),
            Route("/stops", site.stops),
            Route("/problems", site.problems),
            Route("/healthz", lambda request: PlainTextResponse("ok\n")),
            Route(STATUS, service),
            Mount("/static", StaticFiles(directory=HERE / "static")),
            Mount("/fencepost", service),
        ],
        middleware=[Middleware(WithHeaders)],
        lifespan=service.lifespan,
    )


def visitor(request: Request) -> Role | None:
    """Everybody may see the status. The ledger and its events show errors in full: they are for those on the same
    machine; everybody else's label asks at intervals. Judged by the path that was routed: `request.url` is put
    together from the client's own `Host` header, which can make it end in whatever the client likes."""
    return "read" if path_of(request.scope) == STATUS or is_local(request) else None


class Site:
    """The pages. Starlette runs these functions in threads, so they may wait for the database."""

    def __init__(self, settings: Settings, status: StatusTag) -> None:
        self._database = Database(settings.database_url)
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined
        )
        self._templates.globals |= {"status": status}

    def stops(self, request: Request) -> Response:
        return self._page(request, "stops", pages.stops)

    def problems(self, request: Request) -> Response:
        return self._page(request, "problems", pages.problems)

    def _page(self, request: Request, name: str, query: Query) -> Response:
        wanted = pages.Wanted.of(request.query_params)
        try:
            with self._database.reading() as ask:
                found = {"page": query(ask, wanted), "summary": pages.summary(ask)}
        except NoData:
            found = {"page": None, "summary": None}

        def link(**changes: object) -> str:
            """This page, with something changed."""
            said = {"q": wanted.search, "kind": wanted.kind, "priority": wanted.priority} | changes
            return "?" + urlencode({name: value for name, value in said.items() if value})

        template = self._templates.get_template(f"{name}.html")
        return HTMLResponse(template.render(here=name, wanted=wanted, link=link, pages=pages, **found))


class WithHeaders:
    """On every answer. One that brings its own, as the mounted service does, keeps them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with if scope["type"] == "http" else send)


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve the pages.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8791)
    options = parser.parse_args()
    try:
        application = app_of(Settings.of(os.environ))
    except FencepostError as error:
        print(f"stop_sync: {error}", file=sys.stderr)
        return error.exit_code
    uvicorn.run(application, host=options.host, port=options.port, log_level="warning")
    return 0


def __getattr__(name: str) -> Starlette:
    """`stop_sync.web:app`, made when a server asks for it."""
    if name != "app":
        raise AttributeError(name)
    return app_of(Settings.of(os.environ))


if __name__ == "__main__":
    sys.exit(main())
