"""Store URLs of this store, as the client library knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from fencepost.model import checked_id

if TYPE_CHECKING:
    from fencepost.store.redis.link import Link

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


async def namespaces(link: Link, url: str) -> list[str]:
    """Those that exist on the server under the URL's prefix, as far as so many steps of SCAN find them."""
    prefix = dict(parse_qsl(urlsplit(url).query)).get("prefix", "fencepost")
    default = prefix_of(url, "default")
    found, cursor = set(), "0"
    for _ in range(MOST_SCANS):
        cursor, keys = await link.ask(
            "SCAN", cursor, "MATCH", f"{prefix}:*meta", "COUNT", KEYS_PER_SCAN, "TYPE", "hash"
        )
        for key in keys:
            # A job may be called `meta`: only the hash of a namespace has this field.
            if key.endswith(":meta") and await link.ask("HEXISTS", key, "schema"):
                name = key.removesuffix(":meta")
                found.add("default" if name == default else name.removeprefix(f"{prefix}:"))
        if cursor == "0":
            break
    return sorted(found)


MOST_SCANS = 200
KEYS_PER_SCAN = 1000
