"""API and dashboard for the users of the site: their permissions say who may look and who may act."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.contrib.auth.views import redirect_to_login
from django.db import connections
from django.http import HttpRequest, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from fencepost.django.access import caller_of
from fencepost.django.service import bridge

OPEN = ("livez", "readyz", "health/ready", "widget.js")


@csrf_exempt  # type: ignore[untyped-decorator]
async def service(request: HttpRequest, path: str) -> HttpResponseBase:
    """Exempt from Django's check of forms: the service refuses by itself what another site made a browser send."""
    caller = await sync_to_async(caller_of)(request)
    if caller is None and path not in OPEN and _is_page(request):
        return redirect_to_login(request.get_full_path())
    root = request.path[: len(request.path) - len(path)].rstrip("/")
    return await bridge().respond(request, root, caller)


def _is_page(request: HttpRequest) -> bool:
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


# With ATOMIC_REQUESTS each view gets a transaction. This one asks nothing of the project's tables.
service._non_atomic_requests = set(connections.settings)
