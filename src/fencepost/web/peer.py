"""Where a request comes from, and through which proxies.

A proxy on the same machine makes every client appear local. Most proxies name the client in a header, but any
client can send such a header. So a forwarding header counts only when it comes from a proxy that
`FENCEPOST_TRUSTED_PROXIES` names. From any other sender it proves one thing: the request may have come through a proxy,
and is not local.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.requests import Request

FORWARDING = frozenset(
    {
        "forwarded",
        "via",
        "cdn-loop",
        "cf-connecting-ip",
        "cf-connecting-ipv6",
        "fastly-client-ip",
        "fly-client-ip",
        "true-client-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-original-forwarded-for",
        "x-original-host",
        "x-real-ip",
    }
)
"""Headers that proxies add, beside every `X-Forwarded-…`."""
ABOUT_THE_REQUEST = frozenset(
    {"x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix", "x-forwarded-proto", "x-forwarded-server"}
)
"""Those of a trusted proxy that name no client."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """The proxies that may speak for others."""

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        self._networks = tuple(ipaddress.ip_network(each, strict=False) for each in trusted)

    def client(self, request: Request) -> str:
        """The address to log and to count: the client's, if a trusted proxy names it; else the other end's."""
        peer = _end(request, "client")
        if not self._is_trusted(peer):
            return peer or "unknown"
        for named in self._named(request):
            if named is not None:
                return str(named)
        return peer

    def host(self, request: Request) -> str:
        """The host that the client asked for."""
        if self._is_trusted(_end(request, "client")):
            forwarded = request.headers.get("x-forwarded-host", "").rpartition(",")[2].strip()
            if forwarded:
                return forwarded
        return request.headers.get("host", "")

    def is_https(self, request: Request) -> bool:
        """Whether the client asked over HTTPS."""
        if self._is_trusted(_end(request, "client")):
            scheme = request.headers.get("x-forwarded-proto", "").rpartition(",")[2].strip()
            if scheme:
                return scheme.lower() == "https"
        return bool(request.scope.get("scheme") == "https")

    def is_local(self, request: Request) -> bool:
        """From this machine, to a loopback address, by a loopback name. The name matters: a page of another site can
        have its own name resolve to 127.0.0.1, and the browser then counts it as that site."""
        peer, server = _end(request, "client"), _end(request, "server")
        if not (is_loopback(peer) and is_loopback(server) and is_loopback(host_name(self.host(request)))):
            return False
        names = set(forwarding_headers(request))
        if not names:
            return True
        if not self._is_trusted(peer):
            return False
        clients = self._named(request)
        understood = {"x-forwarded-for", "forwarded", "x-real-ip", *ABOUT_THE_REQUEST}
        return bool(clients) and names <= understood and all(each and each.is_loopback for each in clients)

    def _is_trusted(self, address: str) -> bool:
        found = _address(address)
        return found is not None and any(found in network for network in self._networks)

    def _named(self, request: Request) -> list[Address | None]:
        """The client according to each header that names one; None: it cannot be read. In a list of hops every proxy
        appends what it saw, so the client is the last one that is no trusted proxy."""
        found = []
        for name in ("x-forwarded-for", "forwarded", "x-real-ip"):
            if values := request.headers.getlist(name):
                text = ",".join(values)
                found.append(self._first_beyond(_hops(text) if name == "forwarded" else text.split(",")))
        return found

    def _first_beyond(self, hops: list[str]) -> Address | None:
        address: Address | None = None
        for hop in reversed(hops):
            address = _address(hop.strip())
            if address is None or not self._is_trusted(str(address)):
                return address
        return address


def is_local(request: Request) -> bool:
    """Where no proxy is trusted."""
    return Proxies().is_local(request)


def forwarding_headers(request: Request) -> list[str]:
    return [name for name in request.headers if name in FORWARDING or name.startswith("x-forwarded-")]


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(host: str) -> str:
    """Without its port."""
    return host.partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host


def _end(request: Request, which: str) -> str:
    end = request.scope.get(which)
    return str(end[0]) if end else ""


def _hops(forwarded: str) -> list[str]:
    """The `for=` of each element of a `Forwarded` header; an element without one cannot be read."""
    hops = []
    for element in forwarded.split(","):
        pairs = dict(pair.strip().partition("=")[::2] for pair in element.split(";"))
        named = {name.lower(): value for name, value in pairs.items()}
        hops.append(named.get("for", "").strip().strip('"'))
    return hops


def _address(text: str) -> Address | None:
    """`203.0.113.9`, `203.0.113.9:80`, `2001:db8::1`, `[2001:db8::1]:80`."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address  # a socket for both kinds shows IPv4 as ::ffff:203.0.113.9
