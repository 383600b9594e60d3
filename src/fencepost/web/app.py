"""The service as an ASGI application: served by `fencepost serve`, or mounted in another application."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fencepost.errors import ConfigurationError, UsageError
from fencepost.insight.visible import VisibleStore
from fencepost.runs.events import Event
from fencepost.web.access import Caller
from fencepost.web.access_log import AccessLog
from fencepost.web.api import ENDPOINTS
from fencepost.web.audits import Audits
from fencepost.web.auth import Authorize, Doorkeeper
from fencepost.web.compression import Compression
from fencepost.web.dashboard.app import Dashboard
from fencepost.web.desk import PATIENCE, Desk
from fencepost.web.endpoint import Endpoint, Shape, no_job, tagged
from fencepost.web.feed import Feed
from fencepost.web.gate import RequestGate
from fencepost.web.metrics import Metrics
from fencepost.web.openapi import document
from fencepost.web.prepared import is_known
from fencepost.web.probe import StoreProbe
from fencepost.web.problems import HANDLED, Problem
from fencepost.web.transport import TRANSPORT, transport_of
from fencepost.web.widget import script

if TYPE_CHECKING:
    from fencepost.scheduler.scheduler import Scheduler

log = logging.getLogger("fencepost")

WIDGET = "widget.js"
EVERYBODY = Caller("read")


class WebApp:
    """See `Scheduler.asgi`. Served by itself it starts and stops the scheduler; mounted, the host's lifespan must."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        replica: bool = True,
        authorize: Authorize | None = None,
        root_path: str = "",
    ) -> None:
        """`root_path`: where a proxy shows this application, if nothing it is mounted in says so."""
        self.scheduler = scheduler
        self._root_path = root_path.rstrip("/")
        self.takes_part = replica
        self.desk = Desk(scheduler)
        self.audits = Audits(self.desk)
        self.feed = Feed(self.desk, scheduler.shutdown)
        self.metrics = Metrics(self)
        self.store_probe = StoreProbe(scheduler)
        self.doorkeeper = Doorkeeper(scheduler.settings, authorize)
        self.access_log = AccessLog(self.doorkeeper.proxies)
        scheduler.events.subscribe(self.feed.heard)
        scheduler.events.subscribe(self._heard)
        self._app = Starlette(
            routes=[
                *(Route(each.path, self._answering(each), methods=[each.method]) for each in ENDPOINTS),
                Route("/api/v1/openapi.json", self._openapi),
                Route(f"/{WIDGET}", self._widget),
                *Dashboard(self).routes(),
            ],
            middleware=[
                Middleware(Compression),
                Middleware(RequestGate, doorkeeper=self.doorkeeper, access_log=self.access_log),
            ],
            exception_handlers=HANDLED,
            lifespan=self.lifespan,
        )
        self._app.router.redirect_slashes = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            transport = transport_of(scope, send, self.scheduler.shutdown.server)
            scope = {**self._placed(scope), TRANSPORT: transport}
        await self._app(scope, receive, send)

    def _placed(self, scope: Scope) -> Scope:
        """Under `root_path`, whether the proxy has cut that off or not."""
        root, path = self._root_path, scope["path"]
        if not root or scope.get("root_path"):
            return scope
        inside = path == root or path.startswith(f"{root}/")
        return {**scope, "root_path": root, "path": path if inside else root + path}

    def reload(self) -> None:
        """Read the file of tokens again, as `fencepost serve` does at SIGHUP. A file that cannot be used changes
        nothing."""
        try:
            self.doorkeeper.reload()
        except ConfigurationError as error:
            log.error("the tokens stay as they were: %s", error)
        else:
            log.info("the tokens were read again")

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """Of this application, or for the host it is mounted in."""
        if self.takes_part:
            async with self.scheduler:
                yield
            return
        self.scheduler.shutdown.install()
        self.scheduler.reader.keep_up()
        try:
            yield
        finally:
            await self.scheduler.stop()

    def _heard(self, event: Event) -> None:
        """Read regularly from the start on, so that this process can answer its first request even if the store is down
        by then."""
        if event.kind == "replica.joined":
            self.scheduler.reader.keep_up()

    def pipelines(self) -> list[str]:
        """The ids of those declared here."""
        if "fencepost.pipeline.pipeline" not in sys.modules:
            return []
        from fencepost.pipeline.status import declared_pipelines

        return declared_pipelines(self.scheduler)

    async def pipeline_status(
        self, job_id: str | None, patience: float = PATIENCE, caller: Caller = EVERYBODY
    ) -> Shape:
        """Raises 404 where there is no such pipeline."""
        try:
            from fencepost.pipeline.status import declared_pipelines, stored_status
        except ModuleNotFoundError as error:
            raise Problem(404, f"pipelines need {error.name!r}: `pip install 'fencepost[http]'`") from None
        if caller.jobs:
            seen = [id for id in declared_pipelines(self.scheduler) if caller.sees(id)]
            if job_id is None and len(seen) != 1:
                raise Problem(404, "name the pipeline: ?job=")
            job_id = job_id or seen[0]
            if not caller.sees(job_id):
                raise no_job(job_id)
        try:
            found: Shape = await self.desk.share(
                ("pipeline", job_id, caller.jobs),
                lambda store: stored_status(self.scheduler, VisibleStore(store, caller.sight), job_id),
                patience,
            )
        except UsageError as error:
            # The error's own words name jobs that are spelled alike.
            raise no_job(job_id) if caller.jobs and job_id else Problem(404, str(error)) from None
        return found

    def _answering(self, endpoint: Endpoint) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def answer(request: Request) -> Response:
            return await endpoint.respond(self, request)

        return answer

    async def _openapi(self, request: Request) -> Response:
        return tagged(request, document(ENDPOINTS, request.scope.get("root_path", "")))

    async def _widget(self, request: Request) -> Response:
        headers = {"ETag": f'"{sha256(script()).hexdigest()[:32]}"', "Cache-Control": "public, no-cache"}
        if is_known(request, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        return Response(script(), headers=headers, media_type="text/javascript")
