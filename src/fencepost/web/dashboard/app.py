"""Requests for pages: found, checked against the caller's role and jobs, made on the reading thread, sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fencepost.errors import FencepostError
from fencepost.insight.views.words import shown_in
from fencepost.insight.visible import VisibleStore
from fencepost.store.base import Store
from fencepost.web.access import Role
from fencepost.web.dashboard.forms import form_of
from fencepost.web.dashboard.page import Page, PageRoute, framed, redirect
from fencepost.web.dashboard.pages import PAGES
from fencepost.web.dashboard.pages.find import Found
from fencepost.web.dashboard.paths import ASSETS, PREFERENCES, SIGN_IN, SIGN_OUT
from fencepost.web.dashboard.refusals import refusal_page
from fencepost.web.dashboard.render import KINDS, asset, asset_name, warm
from fencepost.web.dashboard.signing import Signing
from fencepost.web.dashboard.view import View
from fencepost.web.endpoint import check_names
from fencepost.web.problems import Problem, problem_of

if TYPE_CHECKING:
    from fencepost.web.app import WebApp

FILES = ("dashboard.css", "dashboard.js", "mark.svg")
FOR_GOOD = "public, max-age=31536000, immutable"

Answer = Callable[[Request], Awaitable[Response]]


class Dashboard:
    def __init__(self, web: WebApp) -> None:
        warm()
        self._web = web
        self._signing = Signing(web)

    def routes(self) -> list[Route]:
        signing = self._signing
        return [
            Route(ASSETS + "{name}", self._asset),
            Route(SIGN_IN, _guarded(self, signing.show), methods=["GET"]),
            Route(SIGN_IN, _guarded(self, signing.sign_in), methods=["POST"]),
            Route(SIGN_OUT, _guarded(self, signing.sign_out), methods=["POST"]),
            Route(PREFERENCES, _guarded(self, signing.prefer), methods=["POST"]),
            *(Route(each.path, _guarded(self, self._showing(each)), methods=["GET"]) for each in PAGES),
            *(
                Route(each.path, _guarded(self, self._acting(each)), methods=["POST"])
                for each in PAGES
                if each.act is not None
            ),
        ]

    def refused(self, request: Request, problem: Problem) -> Response:
        return refusal_page(request, problem, self._web.doorkeeper.takes_tokens)

    def _showing(self, route: PageRoute) -> Answer:
        async def answer(request: Request) -> Response:
            view = self._admitted(request, route.needs(acting=False))
            try:
                return self._framed(request, await self._made(route, view, request), view)
            except Found as found:
                return redirect(found.address)

        return answer

    async def _made(self, route: PageRoute, view: View, request: Request) -> Page:
        if route.direct is not None:
            return await route.direct(view, request)
        show = route.show
        assert show is not None

        async def made(store: Store) -> Page:
            shown_in.set(view.zones.of())  # of sentences; this is a task of its own
            return await show(view, VisibleStore(store, view.caller.sight))

        return await self._web.desk.share(view.shared_as, made)

    def _acting(self, route: PageRoute) -> Answer:
        async def answer(request: Request) -> Response:
            assert route.act is not None
            view = self._admitted(request, route.needs(acting=True))
            done = await route.act(view, request, await form_of(request))
            return redirect(done) if isinstance(done, str) else self._framed(request, done, view)

        return answer

    def _admitted(self, request: Request, role: Role) -> View:
        """The gate has asked for a role as well. A page that acts does not rely on it."""
        view = View.of(self._web, request)
        if not view.caller.may(role):
            self._web.access_log.refused("role", request, f"this takes the role {role}")
            raise Problem(403, f"this takes the role {role}; {view.caller.name} has {view.caller.role}")
        check_names(self._web, request, view.caller)
        return view

    def _framed(self, request: Request, page: Page, view: View) -> Response:
        return framed(request, page, view, can_sign_out=self._signing.is_signed_in(request))

    async def _asset(self, request: Request) -> Response:
        asked = request.path_params["name"]
        name = next((each for each in FILES if asset_name(each) == asked), None)
        if name is None:
            raise Problem(404, "there is no such file")
        kind = KINDS[name.rpartition(".")[2]]
        return Response(asset(name), headers={"Cache-Control": FOR_GOOD}, media_type=kind)


def _guarded(dashboard: Dashboard, answer: Answer) -> Answer:
    """With every expected error as a page."""

    async def guarded(request: Request) -> Response:
        try:
            return await answer(request)
        except (Problem, FencepostError) as error:
            return dashboard.refused(request, problem_of(error))

    return guarded
