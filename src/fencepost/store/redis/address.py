"""Store URLs of this store, as the client library knows them."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from fencepost.model import checked_id

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}


def client_url(url: str) -> str:
    """For the client: it knows no Valkey, and nothing of our prefix."""
    parts = urlsplit(url)
    options = [(name, value) for name, value in parse_qsl(parts.query) if name != "prefix"]
    scheme = SCHEMES.get(parts.scheme, parts.scheme)
    return urlunsplit((scheme, parts.netloc, parts.path, urlencode(options), ""))


def prefix_of(url: str, namespace: str) -> str:
    """What all keys begin with: `fencepost:<namespace>`, or what `?prefix=scheduler` says."""
    given = dict(parse_qsl(urlsplit(url).query)).get("prefix")
    if given is None:
        return f"fencepost:{namespace}"
    checked_id(given, "the URL's prefix")
    return given if namespace == "default" else f"{given}:{namespace}"
