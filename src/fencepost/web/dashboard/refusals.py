"""What went wrong, as a page."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from fencepost.web.dashboard.page import Page, address, framed, plain, redirect
from fencepost.web.dashboard.paths import SIGN_IN
from fencepost.web.dashboard.view import View, root_of
from fencepost.web.problems import Problem


def refusal_page(
    request: Request, problem: Problem, takes_tokens: bool = False, view: View | None = None
) -> Response:
    """A user who has not signed in is redirected to the sign-in page."""
    if problem.status == 401 and takes_tokens:
        after = address(request) if request.method == "GET" else "/"
        return redirect(f"{root_of(request)}{SIGN_IN}?{urlencode({'next': after})}")
    title = HTTPStatus(problem.status).phrase
    body = plain("refusal.html", status=problem.status, title=title, detail=problem.detail)
    answer = framed(request, Page(title, body, status=problem.status), view)
    for name, value in problem.headers.items():
        answer.headers[name] = value
    return answer
