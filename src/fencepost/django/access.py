"""Django's users and permissions as callers of the service."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from fencepost.web.access import Caller, Role
from fencepost.web.problems import Problem

ROLES: tuple[tuple[str, Role], ...] = (
    ("fencepost.admin", "admin"),
    ("fencepost.operate", "operate"),
    ("fencepost.view", "read"),
)
"""The first permission that a user has decides. A superuser has all."""
CALLER = "fencepost.django.caller"


def caller_of(request: HttpRequest) -> Caller | str | None:
    """Who asks. None: no user is signed in; the name of a user who may not see anything. Asks the database."""
    user: Any = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    name = str(user.get_username())
    role = next((role for permission, role in ROLES if user.has_perm(permission)), None)
    return name if role is None else Caller(role, name)


def authorize(request: Any) -> Caller | None:
    """Of the service (`Scheduler.asgi`): what the view has found out."""
    caller = request.scope[CALLER]
    if isinstance(caller, str):
        raise Problem(
            403, f"{caller} lacks the permission fencepost.view; an administrator of the site can give it"
        )
    return caller  # type: ignore[no-any-return]
