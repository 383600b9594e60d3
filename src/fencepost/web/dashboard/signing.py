"""Signing in and out, and what a browser remembers: theme, and whether pages update by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from fencepost.web.dashboard.forms import field, form_of
from fencepost.web.dashboard.page import THEMES, Page, framed, plain, redirect
from fencepost.web.dashboard.paths import SIGN_IN, local_path
from fencepost.web.dashboard.view import root_of
from fencepost.web.problems import Problem

if TYPE_CHECKING:
    from fencepost.web.app import WebApp

A_YEAR = 365 * 86_400
LONGEST_TOKEN = 1_000
CHOICES = {"theme": THEMES, "live": ("on", "off")}


class Signing:
    def __init__(self, web: WebApp) -> None:
        self._web = web

    def is_signed_in(self, request: Request) -> bool:
        """By a cookie, which one can give back."""
        doorkeeper = self._web.doorkeeper
        return doorkeeper.takes_tokens and doorkeeper.sessions.cookie in request.cookies

    async def show(self, request: Request) -> Response:
        if not self._web.doorkeeper.takes_tokens:
            return redirect(f"{root_of(request)}/")
        return self._page(request, local_path(request.query_params.get("next", "/")))

    async def sign_in(self, request: Request) -> Response:
        if not self._web.doorkeeper.takes_tokens:
            raise Problem(404, "there is nothing to sign in to: no token is set")
        form = await form_of(request)
        after = local_path(field(form, "next"))
        token = field(form, "token")[:LONGEST_TOKEN]
        try:
            if not token:
                raise Problem(401, "enter a token")
            digest = await self._web.doorkeeper.digest(token, request)
        except Problem as problem:
            if problem.status != 401:
                raise
            self._web.access_log.refused("unknown caller", request, problem.detail)
            return self._page(request, after, problem.detail.removeprefix("not known: "))
        answer = redirect(f"{root_of(request)}{after}")
        secure = self._web.doorkeeper.proxies.is_https(request)
        self._web.doorkeeper.sessions.begin(answer, digest, cookie_path(request), secure)
        return answer

    async def sign_out(self, request: Request) -> Response:
        answer = redirect(f"{root_of(request)}{SIGN_IN}")
        self._web.doorkeeper.sessions.end(answer, cookie_path(request))
        return answer

    async def prefer(self, request: Request) -> Response:
        form = await form_of(request)
        answer = redirect(f"{root_of(request)}{local_path(field(form, 'next'))}")
        for name, known in CHOICES.items():
            value = field(form, name)
            if value in known:
                answer.set_cookie(
                    f"fencepost_{name}", value, max_age=A_YEAR, path=cookie_path(request), samesite="lax"
                )
        return answer

    def _page(self, request: Request, after: str, wrong: str = "") -> Response:
        body = plain("sign_in.html", root=root_of(request), after=after, wrong=wrong)
        return framed(request, Page("Sign in", body, status=401 if wrong else 200))


def cookie_path(request: Request) -> str:
    return root_of(request) or "/"
