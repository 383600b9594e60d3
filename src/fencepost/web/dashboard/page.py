"""What a page is made of, and how it is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fencepost.insight.visible import VisibleStore
from fencepost.web.access import Role
from fencepost.web.access_log import CALLER
from fencepost.web.dashboard.render import environment
from fencepost.web.dashboard.view import View, root_of
from fencepost.web.dashboard.zones import OF_THE_JOB, Zones

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "same-origin",  # with none at all a browser does not say where a form comes from
    "Cache-Control": "private, no-store",
    "Vary": "Fencepost-Part, Cookie",
}
NAVIGATION: Final = (
    ("Overview", "/"),
    ("Jobs", "/jobs"),
    ("Fires", "/fires"),
    ("Load", "/load"),
    ("Cluster", "/cluster"),
    ("History", "/history"),
    ("Audit", "/audit"),
    ("Doctor", "/doctor"),
)
THEMES: Final = ("auto", "light", "dark")
PART: Final = "fencepost-part"
"""A request header: only the middle of a page is wanted, for the script to put in place."""


@dataclass(frozen=True)
class Page:
    """The middle of a page. Made on the reading thread, once for all requests with the same key."""

    title: str
    main: Markup
    part_of: str = ""
    """The name in the navigation."""
    status: int = 200


Show = Callable[[View, VisibleStore], Awaitable[Page]]
Direct = Callable[[View, Request], Awaitable[Page]]
Form = Mapping[str, list[str]]
Act = Callable[[View, Request, Form], Awaitable[str | Page]]
"""Returns the address to redirect to, or a page that says what is wrong."""


@dataclass(frozen=True)
class PageRoute:
    path: str
    show: Show | None = None
    """Made on the reading thread, once for all requests with the same key."""
    direct: Direct | None = None
    """Instead: made for each request, on the server's loop."""
    act: Act | None = None
    """What a form that is sent here does. Takes the role `operate`, or `admin`."""
    for_operators: bool = False
    """A form: readers are refused it."""
    for_admins: bool = False
    """A form that defines or removes jobs: operators are refused it as well."""

    def needs(self, *, acting: bool) -> Role:
        if self.for_admins:
            return "admin"
        return "operate" if acting or self.for_operators else "read"


def framed(request: Request, page: Page, view: View | None = None, *, can_sign_out: bool = False) -> Response:
    if request.headers.get(PART) == "main":
        return HTMLResponse(page.main, page.status, headers=HEADERS)
    caller = request.scope.get(CALLER)
    zones = view.zones if view is not None else Zones()
    text = (
        environment()
        .get_template("frame.html")
        .render(
            page=page,
            root=root_of(request),
            link=view.link if view is not None else lambda path: f"{root_of(request)}{path}",
            navigation=NAVIGATION if caller is not None else (),
            caller=caller,
            can_sign_out=can_sign_out,
            theme=preference(request, "theme", THEMES),
            themes=THEMES,
            live=preference(request, "live", ("on", "off")),
            zones=zones,
            zone_names=list(dict.fromkeys(["UTC", zones.name, OF_THE_JOB])),
            kept=[(name, each) for name, values in (view.query if view else {}).items() for each in values],
            here=address(request),
        )
    )
    return HTMLResponse(text, page.status, headers=HEADERS)


def address(request: Request) -> str:
    """Path and query of this page, below the dashboard."""
    path = request.scope["path"].removeprefix(root_of(request)) or "/"
    return path + (f"?{request.url.query}" if request.url.query else "")


def preference(request: Request, name: str, known: tuple[str, ...]) -> str:
    given = request.cookies.get(f"fencepost_{name}", "")
    return given if given in known else known[0]


def redirect(address: str) -> Response:
    return RedirectResponse(address, 303, headers={**HEADERS})


def plain(template: str, **values: Any) -> Markup:
    """Of templates that know no view."""
    return Markup(environment().get_template(template).render(**values))
