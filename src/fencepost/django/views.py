"""API and dashboard for the users of the site: their permissions say who may look and who may act."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.views import redirect_to_login
from django.db import connections
from django.http import HttpRequest, HttpResponseBase

from fencepost.django.access import caller_of
from fencepost.django.service import bridge

OPEN = ("livez", "readyz", "health/ready", "widget.js")


async def service(request: HttpRequest, path: str) -> HttpResponseBase:
    caller = await sync_to_async(caller_of)(request)
    if caller is None and path not in OPEN and _is_page(request):
        return redirect_to_login(request.get_full_path())
    root = request.path[: len(request.path) - len(path)].rstrip("/")
    return await bridge().respond(request, root, caller)


def _is_page(request: HttpRequest) -> bool:
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


# As attributes: before Django 5 its decorators do not know coroutines.
marks: Any = service
# The service refuses by itself what another site made a browser send.
marks.csrf_exempt = True
# With ATOMIC_REQUESTS each view gets a transaction. This one asks nothing of the project's tables.
marks._non_atomic_requests = set(connections.settings)
