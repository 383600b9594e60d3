"""Who may do what: *read* looks, *operate* acts as well.

Three ways to be let in, in this order: the host application's own `authorize`; a token of the settings; and, where
there is neither, being on the same machine. That is judged by each request, not by the address that was bound: this
application may be mounted in one that listens anywhere.
"""

from __future__ import annotations

import hmac
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, get_args

from starlette.requests import Request

from fencepost.errors import ConfigurationError
from fencepost.settings import Settings
from fencepost.web.peer import Proxies
from fencepost.web.peer import is_local as is_local
from fencepost.web.peer import is_loopback as is_loopback
from fencepost.web.problems import Problem

log = logging.getLogger("fencepost")

Role = Literal["read", "operate"]
ROLES: tuple[str, ...] = get_args(Role)
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Caller:
    role: Role
    name: str = "api"
    """For the ledger: who triggered, paused or cancelled."""


Authorize = Callable[[Request], Caller | Role | Awaitable[Caller | Role | None] | None]
"""Of the host application: who asks? Anything but a `Caller` or the name of a role: nobody who may."""


class Doorkeeper:
    def __init__(self, settings: Settings, authorize: Authorize | None = None) -> None:
        self._authorize = authorize
        self.proxies = Proxies(settings.trusted_proxies)
        given: tuple[tuple[str | None, Role], ...] = (
            (settings.auth_token, "operate"),
            (settings.read_token, "read"),
        )
        self._tokens = [
            (_digest(token), role, len(token) < SHORTEST_TOKEN) for token, role in given if token is not None
        ]
        if any(short for _, _, short in self._tokens):
            log.warning(
                "a token of fewer than %d characters can be guessed: it is accepted from this machine only",
                SHORTEST_TOKEN,
            )

    async def caller(self, request: Request) -> Caller:
        """Whoever asks; raises 401 if that is nobody who may."""
        if self._authorize is not None:
            known: Any = self._authorize(request)
            if inspect.isawaitable(known):
                known = await known
            return _checked(known)
        if self._tokens:
            return Caller(self._role(request))
        if self.proxies.is_local(request):
            return Caller("operate")
        raise _unknown(
            "set FENCEPOST_AUTH_TOKEN and send it as `Authorization: Bearer …`, or give asgi(authorize=…); without "
            "either only requests from the same machine are answered"
        )

    def _role(self, request: Request) -> Role:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        digest = _digest(given.strip())
        # All are compared, each in constant time: how long it takes says nothing about any.
        found = [(role, short) for token, role, short in self._tokens if hmac.compare_digest(token, digest)]
        if scheme.lower() != "bearer" or not found:
            raise _unknown("send the service's token as `Authorization: Bearer …`")
        role, short = found[0]
        if short and not self.proxies.is_local(request):
            raise _unknown(
                f"tokens of fewer than {SHORTEST_TOKEN} characters are accepted from this machine only"
            )
        return role


def check_address(settings: Settings) -> None:
    """Listening where others can reach it demands a token, and one that cannot be guessed."""
    if is_loopback(settings.host):
        return
    tokens = [token for token in (settings.auth_token, settings.read_token) if token is not None]
    if not tokens:
        raise ConfigurationError(
            f"host {settings.host} can be reached from other machines, and no token is set: set FENCEPOST_AUTH_TOKEN "
            "or FENCEPOST_AUTH_TOKEN_FILE, or listen on 127.0.0.1"
        )
    if any(len(token) < SHORTEST_TOKEN for token in tokens):
        raise ConfigurationError(
            f"host {settings.host} can be reached from other machines, and a token has fewer than {SHORTEST_TOKEN} "
            "characters: use a longer one, for instance from `openssl rand -hex 32`, or listen on 127.0.0.1"
        )


def _checked(known: Any) -> Caller:
    """What the host application's `authorize` said. A value that is neither a caller nor a role admits nobody: `False`
    and a user object are answers to another question."""
    if known is None:
        raise _unknown("sign in to the application first")
    is_caller = isinstance(known, Caller)
    role: Any = known.role if is_caller else known
    if isinstance(role, str) and role in ROLES and (not is_caller or isinstance(known.name, str)):
        return known if is_caller else Caller(known)
    log.error(
        "authorize returned %s; return a Caller, one of %s, or None: the request was refused",
        "a Caller with an unknown role or name" if is_caller else type(known).__name__,
        ", ".join(map(repr, ROLES)),
    )
    raise _unknown("the application gave no role that is known here")


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _unknown(remedy: str) -> Problem:
    return Problem(401, f"not known: {remedy}", headers={"WWW-Authenticate": 'Bearer realm="fencepost"'})
