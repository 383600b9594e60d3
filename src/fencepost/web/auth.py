"""Who is let in. What a role may do is in `fencepost.web.access`.

Three ways to be let in, in this order: the host application's own `authorize`; a token of the settings or of the file
of tokens; and, where there is neither, being on the same machine. That is judged by each request, not by the address
that was bound: this application may be mounted in one that listens anywhere.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request

from fencepost.errors import ConfigurationError
from fencepost.settings import Settings
from fencepost.web.access import ROLES, digest_of, read_tokens
from fencepost.web.access import Caller as Caller
from fencepost.web.access import Role as Role
from fencepost.web.peer import Proxies
from fencepost.web.peer import is_local as is_local
from fencepost.web.peer import is_loopback as is_loopback
from fencepost.web.problems import Problem
from fencepost.web.session import Sessions

log = logging.getLogger("fencepost")

SHORTEST_TOKEN = 16
HELD_BACK = 1.0
"""Seconds by which the answer to a wrong token is held back."""
MOST_HELD_BACK = 100
"""Answers held back at once. They keep their connections, and must not use up all of them; more are answered 429."""

Authorize = Callable[[Request], Caller | Role | Awaitable[Caller | Role | None] | None]
"""A function of the host application that names the caller. Any result but a `Caller` or a role's name refuses."""


class Doorkeeper:
    def __init__(self, settings: Settings, authorize: Authorize | None = None) -> None:
        self._authorize = authorize
        self.proxies = Proxies(settings.trusted_proxies)
        given = ((settings.auth_token, Caller("admin")), (settings.read_token, Caller("read")))
        self._own = {digest_of(token): caller for token, caller in given if token is not None}
        self._short = {
            digest_of(token) for token, _ in given if token is not None and len(token) < SHORTEST_TOKEN
        }
        self._file = settings.tokens_file
        self._tokens = dict(self._own)
        self._held_back = 0
        self.sessions = Sessions(settings)
        self.reload()
        if self._short:
            log.warning(
                "a token of fewer than %d characters can be guessed: it is accepted from this machine only",
                SHORTEST_TOKEN,
            )

    def reload(self) -> None:
        """Read the file of tokens. If it cannot be used this raises, and the tokens read before stay valid."""
        if self._file is not None:
            self._tokens = {**read_tokens(self._file), **self._own}

    @property
    def takes_tokens(self) -> bool:
        """Whether users can sign in here. If not, `authorize` names the caller, or only this machine may call."""
        return self._authorize is None and (bool(self._own) or self._file is not None)

    async def caller(self, request: Request) -> Caller:
        """The caller; raises 401 if the request is not allowed in."""
        if self._authorize is not None:
            known: Any = self._authorize(request)
            if inspect.isawaitable(known):
                known = await known
            return _checked(known)
        if self.takes_tokens:
            if "authorization" not in request.headers:
                signed_in = self.sessions.caller(request, self._tokens)
                if signed_in is not None:
                    return signed_in
            return await self._bearer(request)
        if self.proxies.is_local(request):
            return Caller("admin")
        raise _unknown(
            "set FENCEPOST_AUTH_TOKEN and send it in the header `Authorization`, after `Bearer`, or give "
            "asgi(authorize=…); without either only requests from the same machine are answered"
        )

    async def _bearer(self, request: Request) -> Caller:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            raise _unknown("send the service's token in the header `Authorization`, after `Bearer`")
        return self._tokens[await self.digest(given.strip(), request)]

    async def digest(self, token: str, request: Request) -> bytes:
        """Of a token that is known and may be used from there; raises 401 otherwise."""
        digest = digest_of(token)
        # Found by its digest: how long that takes says nothing about the token.
        if digest not in self._tokens:
            await self._hold_back()
            raise _unknown("this token is wrong")
        if digest in self._short and not self.proxies.is_local(request):
            raise _unknown(
                f"tokens of fewer than {SHORTEST_TOKEN} characters are accepted from this machine only"
            )
        return digest

    async def _hold_back(self) -> None:
        """Slows guessing down. Right tokens never wait. The server keeps nothing about the guessing client, so another
        client with the same address is not shut out."""
        if self._held_back >= MOST_HELD_BACK:
            raise Problem(429, "too many wrong tokens; try again", headers={"Retry-After": "5"})
        self._held_back += 1
        try:
            await asyncio.sleep(HELD_BACK)
        finally:
            self._held_back -= 1


def check_address(settings: Settings) -> None:
    """Listening where others can reach it demands a token, and one that cannot be guessed."""
    if is_loopback(settings.host):
        return
    tokens = [token for token in (settings.auth_token, settings.read_token) if token is not None]
    if not tokens and settings.tokens_file is None:
        raise ConfigurationError(
            f"host {settings.host} can be reached from other machines, and no token is set: set FENCEPOST_AUTH_TOKEN, "
            "FENCEPOST_AUTH_TOKEN_FILE or FENCEPOST_TOKENS_FILE, or listen on 127.0.0.1"
        )
    if any(len(token) < SHORTEST_TOKEN for token in tokens):
        raise ConfigurationError(
            f"host {settings.host} can be reached from other machines, and a token has fewer than {SHORTEST_TOKEN} "
            "characters: use a longer one, for instance from `openssl rand -hex 32`, or listen on 127.0.0.1"
        )


def _checked(known: Any) -> Caller:
    """The caller that the host application's `authorize` returned. Any value that is neither a `Caller` nor a role is
    refused, such as `False` or a user object."""
    if known is None:
        raise _unknown("sign in to the application first")
    is_caller = isinstance(known, Caller)
    role: Any = known.role if is_caller else known
    if isinstance(role, str) and role in ROLES and (not is_caller or _is_complete(known)):
        return known if is_caller else Caller(known)
    log.error(
        "authorize returned %s; return a Caller, one of %s, or None: the request was refused",
        "a Caller with an unknown role, name or jobs" if is_caller else type(known).__name__,
        ", ".join(map(repr, ROLES)),
    )
    raise _unknown("the application gave no role that is known here")


def _is_complete(caller: Caller) -> bool:
    """A text in place of the patterns would be read letter by letter, and its `*` would match everything."""
    name: Any = caller.name
    patterns: Any = caller.jobs
    return (
        isinstance(name, str)
        and isinstance(patterns, tuple)
        and all(isinstance(each, str) for each in patterns)
    )


def _unknown(remedy: str) -> Problem:
    return Problem(401, f"not known: {remedy}", headers={"WWW-Authenticate": 'Bearer realm="fencepost"'})
