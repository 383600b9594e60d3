"""Who may do what: *read* looks, *operate* acts as well.

Three ways to be let in, in this order: the host application's own `authorize`; a token of the settings; and, where
there is neither, being on the same machine. That is judged by each request, not by the address that was bound: this
application may be mounted in one that listens anywhere.
"""

from __future__ import annotations

import hmac
import inspect
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from starlette.requests import Request

from fencepost.errors import ConfigurationError
from fencepost.settings import Settings
from fencepost.web.problems import Problem

log = logging.getLogger("fencepost")

Role = Literal["read", "operate"]
SHORTEST_TOKEN = 16
FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


@dataclass(frozen=True, slots=True)
class Caller:
    role: Role
    name: str = "api"
    """For the ledger: who triggered, paused or cancelled."""


Authorize = Callable[[Request], Caller | Role | Awaitable[Caller | Role | None] | None]
"""Of the host application: who asks? None: nobody who may."""


class Doorkeeper:
    def __init__(self, settings: Settings, authorize: Authorize | None = None) -> None:
        self._authorize = authorize
        given: tuple[tuple[str | None, Role], ...] = (
            (settings.auth_token, "operate"),
            (settings.read_token, "read"),
        )
        self._tokens = [(_digest(token), role) for token, role in given if token is not None]
        for token, _ in given:
            if token is not None and len(token) < SHORTEST_TOKEN:
                log.warning(
                    "a token of fewer than %d characters can be guessed; use a longer one", SHORTEST_TOKEN
                )

    async def caller(self, request: Request) -> Caller:
        """Whoever asks; raises 401 if that is nobody who may."""
        if self._authorize is not None:
            known = self._authorize(request)
            if inspect.isawaitable(known):
                known = await known
            if known is None:
                raise _unknown("sign in to the application first")
            return known if isinstance(known, Caller) else Caller(known)
        if self._tokens:
            return Caller(self._role(request))
        if is_local(request):
            return Caller("operate")
        raise _unknown(
            "set FENCEPOST_AUTH_TOKEN and send it as `Authorization: Bearer …`, or give asgi(authorize=…); without "
            "either only requests from the same machine are answered"
        )

    def _role(self, request: Request) -> Role:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        digest = _digest(given.strip())
        # All are compared, each in constant time: how long it takes says nothing about any.
        roles = [role for token, role in self._tokens if hmac.compare_digest(token, digest)]
        if scheme.lower() != "bearer" or not roles:
            raise _unknown("send the service's token as `Authorization: Bearer …`")
        return roles[0]


def check_address(settings: Settings) -> None:
    """Listening where others can reach it demands a token."""
    if not is_loopback(settings.host) and settings.auth_token is None and settings.read_token is None:
        raise ConfigurationError(
            f"host {settings.host} can be reached from other machines, and no token is set: set FENCEPOST_AUTH_TOKEN "
            "or FENCEPOST_AUTH_TOKEN_FILE, or listen on 127.0.0.1"
        )


def is_local(request: Request) -> bool:
    """From this machine, to a loopback address, by a loopback name, through no proxy that says so. The name matters:
    a page of another site can have its own name resolve to 127.0.0.1, and the browser then counts it as that site."""
    ends = (request.scope.get("client"), request.scope.get("server"))
    return (
        all(end is not None and is_loopback(end[0]) for end in ends)
        and is_loopback(_host_named(request))
        and not any(name in request.headers for name in FORWARDED)
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _host_named(request: Request) -> str:
    host = request.headers.get("host", "")
    return host.partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _unknown(remedy: str) -> Problem:
    return Problem(401, f"not known: {remedy}", headers={"WWW-Authenticate": 'Bearer realm="fencepost"'})
