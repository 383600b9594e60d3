"""Sign-ins of the dashboard: a cookie that says which token was given, until when it holds, and a signature.

The server keeps nothing. A cookie names its token by a fingerprint, so it ends with the token: once that is removed
from the file of tokens, or replaced, the cookie is refused. See `docs/decisions/0044-dashboard-sign-in.md`.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from fencepost.clock import Clock, SystemClock
from fencepost.settings import Settings
from fencepost.web.access import Caller

LASTS: Final = timedelta(hours=12)


class Sessions:
    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._key = _key(settings)
        self.cookie = f"fencepost_{sha256(settings.namespace.encode()).hexdigest()[:8]}"
        """By namespace: a browser keeps one set of cookies for all ports of a host."""

    def issue(self, digest: bytes) -> str:
        """The cookie's value for a user who signed in with the token of this digest."""
        until = int((self._clock.wall() + LASTS).timestamp())
        text = f"{fingerprint(digest)}.{until}"
        return f"{text}.{self._signed(text)}"

    def caller(self, request: Request, tokens: Mapping[bytes, Caller]) -> Caller | None:
        """The caller who signed in; None: there is no valid cookie, or it has expired."""
        digest = self.digest(request.cookies.get(self.cookie, ""), tokens)
        return None if digest is None else tokens[digest]

    def digest(self, text: str, tokens: Mapping[bytes, Caller]) -> bytes | None:
        named, signature = text.rpartition(".")[::2]
        if not signature.isascii() or not hmac.compare_digest(self._signed(named), signature):
            return None
        mark, _, until = named.partition(".")
        if not until.isdigit() or int(until) <= self._clock.wall().timestamp():
            return None
        return next((digest for digest in tokens if fingerprint(digest) == mark), None)

    def begin(self, response: Response, digest: bytes, path: str, secure: bool) -> None:
        age = int(LASTS.total_seconds())
        response.set_cookie(
            self.cookie,
            self.issue(digest),
            max_age=age,
            path=path,
            secure=secure,
            httponly=True,
            samesite="lax",
        )

    def end(self, response: Response, path: str) -> None:
        response.delete_cookie(self.cookie, path=path, httponly=True, samesite="lax")

    def expires(self, request: Request) -> datetime | None:
        until = request.cookies.get(self.cookie, "").split(".")[1:2]
        if not until or not until[0].isdigit():
            return None
        return datetime.fromtimestamp(int(until[0]), self._clock.wall().tzinfo)

    def _signed(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogateescape"), "sha256").hexdigest()


def fingerprint(digest: bytes) -> str:
    """Of a token. Not its digest, which stands in the file of tokens."""
    return sha256(b"fencepost session" + digest).hexdigest()[:24]


def _key(settings: Settings) -> bytes:
    """Of secrets that all processes of a service share. A file of tokens has only hashes, which are no secret: there
    each process draws a key of its own."""
    known = [token for token in (settings.auth_token, settings.read_token) if token is not None]
    if not known:
        return secrets.token_bytes(32)
    return sha256("\x00".join(["fencepost session key", *known]).encode("utf-8", "surrogateescape")).digest()
