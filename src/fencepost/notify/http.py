"""One POST, bounded in time and size. Redirects are not followed: signature and body are meant for one address.
Certificates are verified. Internal addresses are fine: receivers often are inside."""

from __future__ import annotations

import logging
import re
import socket
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from fencepost import __version__
from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.notify.sending import in_thread, is_text, shown

if TYPE_CHECKING:
    import ssl
    from email.message import Message
    from http.client import HTTPConnection

log = logging.getLogger("fencepost.notify")
USER_AGENT = f"fencepost/{__version__}"
TIMEOUT = 10.0
"""Seconds for the whole exchange."""
ANSWER_LIMIT = 4096
LONGEST_RETRY_AFTER = 3600.0
LOCAL = ("localhost", "127.0.0.1", "::1")
REFUSED_FOR_GOOD = frozenset({400, 413, 415, 422})
"""These are said of the notice. Others, as 401 and 404, are said of the set-up, which a person may correct."""


@dataclass(frozen=True, repr=False)
class Target:
    """Where to POST. Path and query may hold a secret, so they are never shown."""

    url: str

    @classmethod
    def of(cls, url: object, what: str) -> Target:
        """`what`: the argument's name, for the error, which does not show the URL."""
        if not is_text(url, r"https?://[!-~]{1,2000}"):
            raise ConfigurationError(f"{what} must be a URL such as https://host/path, in ASCII")
        try:
            parts = urlsplit(url)
            usable = bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.fragment:
            raise ConfigurationError(f"{what} names no host and port that can be used, or has a # in it")
        if parts.username is not None or parts.password is not None:
            raise ConfigurationError(f"{what} has a user or password in front of the host; leave them out")
        return cls(url)

    def __repr__(self) -> str:
        return f"Target({self.host!r})"

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def host(self) -> str:
        return self.parts.hostname or ""


@dataclass(frozen=True)
class HttpReply:
    status: int
    headers: Message
    text: str


async def post(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    timeout: float = TIMEOUT,
    secrets: tuple[str, ...] = (),
) -> HttpReply:
    """The answer, if it is a success; else raises `DeliveryFailed`."""
    exchange = _Exchange(target, body, headers, timeout)
    answer = await in_thread(exchange.run, timeout, exchange.abort)
    if 200 <= answer.status < 300:
        log.debug(_said(target, answer, secrets))
        return answer
    raise refused(target, answer, secrets)


def refused(target: Target, answer: HttpReply, secrets: tuple[str, ...] = ()) -> DeliveryFailed:
    if 300 <= answer.status < 400:
        return DeliveryFailed(
            f"{target.host} answers {answer.status}, a redirect; give the address it leads to"
        )
    return DeliveryFailed(
        _said(target, answer, secrets),
        permanent=answer.status in REFUSED_FOR_GOOD,
        retry_after=retry_after(answer.headers),
    )


def _said(target: Target, answer: HttpReply, secrets: tuple[str, ...]) -> str:
    said = shown(answer.text, (*secrets, *_secrets_in(target)))
    return f"{target.host} answers {answer.status}" + (f": {said}" if said else "")


def retry_after(headers: Message) -> float | None:
    """Seconds. A date is held against the receiver's own: no clock of ours is read."""
    said = str(headers.get("retry-after", "")).strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", said):
        return min(float(said), LONGEST_RETRY_AFTER)
    until, now = _date(said), _date(str(headers.get("date", "")))
    if until is None or now is None:
        return None
    return min(max((until - now).total_seconds(), 0.0), LONGEST_RETRY_AFTER)


def _date(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime

    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def _secrets_in(target: Target) -> tuple[str, ...]:
    """A receiver may repeat the address it was called by, whole or in part."""
    pieces = re.split(r"[/?&=]", target.url.partition(target.parts.netloc)[2])
    return target.url, *(piece for piece in pieces if len(piece) > 5)


class _Exchange:
    def __init__(self, target: Target, body: bytes, headers: Mapping[str, str], timeout: float) -> None:
        self._target, self._body, self._timeout = target, body, timeout
        self._headers = {"User-Agent": USER_AGENT, "Connection": "close", **headers}
        self._connection: HTTPConnection | None = None
        self._socket: socket.socket | None = None

    def run(self) -> HttpReply:
        from http.client import HTTPException  # with ssl, slow to import: only those who notify need it

        try:
            connection, address, headers = _route(self._target, self._timeout)
            self._connection = connection
            try:
                connection.connect()
                self._socket = connection.sock  # which the connection hands to a response that ends it
                connection.request("POST", address, self._body, {**self._headers, **headers})
                with connection.getresponse() as response:
                    text = response.read(ANSWER_LIMIT).decode("utf-8", "replace")
                return HttpReply(response.status, response.headers, text)
            finally:
                connection.close()
        except (OSError, HTTPException) as error:
            raise DeliveryFailed(f"{self._target.host} cannot be reached: {described(error)}") from None

    def abort(self) -> None:
        """From another thread: whatever waits for the socket ends with an error."""
        with suppress(OSError, AttributeError):
            (self._socket or self._connection.sock).shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


def _route(target: Target, timeout: float) -> tuple[HTTPConnection, str, dict[str, str]]:
    """A connection that is not open yet, what to ask it for, and headers for the environment's proxy, if any."""
    from http.client import HTTPConnection, HTTPSConnection

    parts, proxy = target.parts, _proxy(target)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host, port = (target.host, parts.port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
    if parts.scheme == "http":
        connection = HTTPConnection(host, port, timeout=timeout)
        return (connection, path, {}) if proxy is None else (connection, target.url, _authorization(proxy))
    secured = HTTPSConnection(host, port, timeout=timeout, context=certificates())
    if proxy is not None:
        secured.set_tunnel(target.host, parts.port or 443, _authorization(proxy))
    return secured, path, {}


def _proxy(target: Target) -> SplitResult | None:
    """`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as other tools heed them. This machine is always reached directly."""
    from urllib.request import getproxies, proxy_bypass

    address = getproxies().get(target.parts.scheme)
    if not address or target.host in LOCAL or proxy_bypass(target.parts.netloc):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    said = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(said.encode()).decode()}"}


@cache
def certificates() -> ssl.SSLContext:
    """Those of the system; reading them takes a tenth of a second. `SSL_CERT_FILE` is heeded."""
    import ssl

    return ssl.create_default_context()


def described(error: Exception) -> str:
    """Without what may hold an address: the text of a library's error is not ours."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if str(error).startswith("Tunnel connection failed"):
        return f"the proxy refuses: {shown(str(error))}"
    reason = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    reason = reason if isinstance(reason, str) else getattr(error, "strerror", None)
    return shown(reason) if isinstance(reason, str) and reason else type(error).__name__
