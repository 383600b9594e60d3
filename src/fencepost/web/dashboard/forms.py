"""Forms as browsers send them. Read here and not by Starlette, which would need another package."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from fencepost.web.dashboard.page import Form
from fencepost.web.dashboard.paths import WEB_FORM
from fencepost.web.problems import Problem

MOST_FIELDS = 700


async def form_of(request: Request) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != WEB_FORM:
        raise Problem(415, f"send {WEB_FORM}; programs use the API under /api/v1")
    try:
        pairs = parse_qsl(
            (await request.body()).decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise Problem(422, f"this is no form of at most {MOST_FIELDS} fields") from None
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def field(form: Form, name: str) -> str:
    return form.get(name, [""])[0].strip()
