"""Asking servers: only the hosts and addresses that a source allows, however they redirect."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from functools import cache
from typing import TypeVar

from fencepost.errors import FencepostError, missing_extra
from fencepost.pipeline.addresses import is_public
from fencepost.pipeline.source import Source, Validators

try:
    import httpx2
    import stamina
except ImportError as missing:
    raise missing_extra("a pipeline with sources", missing, "http") from missing

T = TypeVar("T")

MOST_REDIRECTS = 5
MOST_ADDRESSES = 4
"""Of a host that are tried, one after the other."""
TEXT_LIMIT = 500
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class ProbeFailed(FencepostError):
    """The source could not be asked."""


class Refused(FencepostError):
    """Not an address that the source allows. It is not tried again."""


class Failed(FencepostError):
    """An answer that is of no use."""

    def __init__(self, message: str, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient


GIVES_UP = (Refused, Failed, httpx2.HTTPError, httpx2.InvalidURL)
"""What asking may end with, when it was tried often enough."""


def probe(source: Source) -> Validators:
    """Ask for its first byte: unlike HEAD this leads to the object itself, whatever stands in front of it."""
    try:
        return persistently(source, lambda: _asked(source))
    except GIVES_UP as error:
        raise ProbeFailed(described(error)) from error


def _asked(source: Source) -> Validators:
    with answer(source, {"Range": "bytes=0-0"}) as response:
        if response.status_code not in (200, 206):
            raise failed(response)
        return validators(response)


def persistently(source: Source, work: Callable[[], T]) -> T:
    """Try again after what may pass, as the source's `retry` says."""
    retry = source.retry
    for attempt in stamina.retry_context(
        on=_may_pass,
        attempts=retry.attempts,
        timeout=None,
        wait_initial=retry.first,
        wait_max=retry.cap,
        wait_jitter=retry.first,
    ):
        with attempt:
            return work()
    raise AssertionError("unreachable")


def _may_pass(error: Exception) -> bool:
    return error.transient if isinstance(error, Failed) else isinstance(error, httpx2.TransportError)


@contextmanager
def answer(source: Source, headers: dict[str, str]) -> Iterator[httpx2.Response]:
    """The answer at the end of all redirects, its body not read yet. Bytes are taken as they are: lengths and ranges
    count the encoded ones. There is no client in between: it would log the URL, which may hold a secret."""
    with _Checked(source) as transport:
        own = url = httpx2.URL(source.url)
        for _ in range(MOST_REDIRECTS + 1):
            _check(source, url)
            given = source.headers if _origin(url) == _origin(own) else {}
            asked = {**given, "Accept-Encoding": "identity", **headers}
            with _closing(transport.ask(url, asked)) as response:
                if not response.has_redirect_location:
                    yield response
                    return
                following = url.join(response.headers["location"])
            if (url.scheme, following.scheme) == ("https", "http"):
                raise Refused("it redirects from https to http")
            url = following
        raise Refused(f"it redirects more than {MOST_REDIRECTS} times")


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    """Whom credentials are meant for. Another port of the same host is another server."""
    return url.scheme, url.host.lower(), url.port or {"http": 80, "https": 443}.get(url.scheme)


def validators(response: httpx2.Response) -> Validators:
    headers = response.headers
    url = response.request.url.copy_with(query=None, fragment=None, userinfo=b"")
    return Validators(
        _text(headers.get("etag")),
        _text(headers.get("last-modified")),
        whole_length(response),
        _file_name(headers.get("content-disposition")),
        _text(str(url)),
    )


def whole_length(response: httpx2.Response) -> int | None:
    """Of the whole, also where a part was sent."""
    if response.status_code == 206:
        found = content_range(response)
        return None if found is None else found[1]
    length = response.headers.get("content-length", "")
    return int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None


def content_range(response: httpx2.Response) -> tuple[int, int | None] | None:
    """Where the part begins, and how long the whole is."""
    found = re.fullmatch(
        r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)", response.headers.get("content-range", "")
    )
    return None if found is None else (int(found[1]), None if found[2] == "*" else int(found[2]))


def failed(response: httpx2.Response) -> Failed:
    return Failed(f"the server answers {response.status_code}", response.status_code in TRANSIENT)


def described(error: Exception) -> str:
    """What went wrong, without the URL, which may be secret: of the client's errors this one alone may hold it."""
    if isinstance(error, httpx2.InvalidURL):
        return "it redirects to what is not a URL"
    text = str(error)[:TEXT_LIMIT]
    return text if isinstance(error, FencepostError) else f"{type(error).__name__}: {text}"


# --- who may be asked ---------------------------------------------------------------------------------------


class _Checked(httpx2.HTTPTransport):
    """Connects to addresses that were checked. The name is not resolved a second time: it might lead elsewhere."""

    def __init__(self, source: Source) -> None:
        super().__init__(verify=_certificates(), trust_env=False)
        self._source = source

    def ask(self, url: httpx2.URL, headers: dict[str, str]) -> httpx2.Response:
        *others, last = _addresses(self._source, url)
        for address in others:
            with suppress(httpx2.ConnectError):  # another one of the same host may answer
                return self._ask(url, address, headers)
        return self._ask(url, last, headers)

    def _ask(self, url: httpx2.URL, address: str, headers: dict[str, str]) -> httpx2.Response:
        named = httpx2.Request("GET", url, headers=headers)
        response = self.handle_request(
            httpx2.Request(
                "GET",
                url.copy_with(host=address),
                headers=named.headers,
                extensions={
                    "timeout": httpx2.Timeout(self._source.timeout).as_dict(),
                    "sni_hostname": url.host,  # certificates are of names
                },
            )
        )
        response.request = named
        return response


@cache
def _certificates() -> ssl.SSLContext:
    """Reading them takes a tenth of a second. `SSL_CERT_FILE` is heeded."""
    return httpx2.create_ssl_context()


def _check(source: Source, url: httpx2.URL) -> None:
    if url.scheme not in ("http", "https"):
        raise Refused(f"it leads to {url.scheme}:, which is neither http nor https")
    if url.host.lower() not in source.hosts:
        raise Refused(f"it redirects to {url.host}, which is not in allow_hosts")


def _addresses(source: Source, url: httpx2.URL) -> list[str]:
    try:
        found = socket.getaddrinfo(url.host, url.port or 0, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpx2.ConnectError(f"{url.host} has no address ({error.strerror})") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [each for each in addresses if source.allow_private or is_public(each)]
    if not allowed:
        raise Refused(f"{url.host} is an address of an internal network; allow_private=True allows it")
    return allowed[:MOST_ADDRESSES]


@contextmanager
def _closing(response: httpx2.Response) -> Iterator[httpx2.Response]:
    try:
        yield response
    finally:
        response.close()


def _text(value: str | None) -> str | None:
    return value[:TEXT_LIMIT] if value else None


def _file_name(disposition: str | None) -> str | None:
    if not disposition:
        return None
    message = Message()
    message["content-disposition"] = disposition
    return _text(message.get_filename())
