"""Store URLs of this store: where the server is, or who knows where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from fencepost.errors import ConfigurationError
from fencepost.model import checked_id

if TYPE_CHECKING:
    from fencepost.store.redis.link import Link

SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
PORTS = {"sentinel": 26379, "cluster": 6379}
OURS = ("prefix", "sentinel_username", "sentinel_password")
"""Parameters that the client library does not know."""

Host = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Address:
    client_url: str
    """For the client library, which knows no Valkey, one host, and nothing of our parameters."""
    kind: Literal["server", "sentinel", "cluster"] = "server"
    hosts: tuple[Host, ...] = ()
    """The Sentinels, or nodes of the cluster."""
    service: str = ""
    """The name under which the Sentinels watch the primary."""
    sentinel_login: Mapping[str, str | None] = field(default_factory=dict)


def address_of(url: str) -> Address:
    """`redis://host:6379/0`, `redis+sentinel://host:26379,host:26379/service/0`, `redis+cluster://host,host`; each with
    `rediss`, `valkey` and `valkeys`, too."""
    parts = urlsplit(url)
    base, _, kind = parts.scheme.partition("+")
    options = parse_qsl(parts.query)
    query = urlencode([(name, value) for name, value in options if name not in OURS])
    scheme = SCHEMES.get(base, base)
    if not kind:
        return Address(urlunsplit((scheme, parts.netloc, parts.path, query, "")))
    login, at, names = parts.netloc.rpartition("@")
    hosts = tuple(_host(name, PORTS[kind]) for name in names.split(","))
    if kind == "cluster":
        if parts.path not in ("", "/", "/0"):
            raise ConfigurationError(
                f"the store URL ({parts.scheme}://…) names a database; a cluster has only one: leave it out"
            )
        client = urlunsplit((scheme, f"{login}{at}{names.split(',')[0]}", "/0", query, ""))
        return Address(client, "cluster", hosts)
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ConfigurationError(
            f"the store URL ({parts.scheme}://…) does not name the service that the Sentinels watch; write "
            f"{parts.scheme}://host:26379,host:26379/mymaster/0"
        )
    client = urlunsplit((scheme, f"{login}{at}{names.split(',')[0]}", f"/{database or 0}", query, ""))
    given = dict(options)
    own = {
        "username": given.get("sentinel_username"),
        "password": given.get("sentinel_password"),
    }
    return Address(client, "sentinel", hosts, unquote(service), own)


def _host(name: str, port: int) -> Host:
    try:
        parts = urlsplit(f"//{name}")
        return unquote(parts.hostname or "localhost"), parts.port or port
    except ValueError:
        raise ConfigurationError("the store URL names a port above 65535") from None


def prefix_of(url: str, namespace: str) -> str:
    """What all keys begin with: `fencepost:<namespace>`, or what `?prefix=scheduler` says. In a cluster it stands in
    braces: keys that share what is in braces are in one slot, thus on one node."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query)).get("prefix")
    if given is None:
        prefix = f"fencepost:{namespace}"
    else:
        checked_id(given, "the URL's prefix")
        prefix = given if namespace == "default" else f"{given}:{namespace}"
    return f"{{{prefix}}}" if _is_cluster(url) else prefix


async def namespaces(link: Link, url: str) -> list[str]:
    """Those that exist on the server under the URL's prefix, as far as so many steps of SCAN find them. Of a cluster:
    on the node of the namespace that was asked for."""
    prefix = dict(parse_qsl(urlsplit(url).query)).get("prefix", "fencepost")
    default = prefix_of(url, "default")
    pattern = f"{{{prefix}*meta" if _is_cluster(url) else f"{prefix}:*meta"
    found, cursor = set(), "0"
    for _ in range(MOST_SCANS):
        cursor, keys = await link.ask(
            "SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_PER_SCAN, "TYPE", "hash"
        )
        for key in keys:
            # A job may be called `meta`: only the hash of a namespace has this field.
            if key.endswith(":meta") and await link.ask("HEXISTS", key, "schema"):
                name = key.removesuffix(":meta")
                found.add("default" if name == default else name.strip("{}").removeprefix(f"{prefix}:"))
        if cursor == "0":
            break
    return sorted(found)


def _is_cluster(url: str) -> bool:
    return urlsplit(url).scheme.endswith("+cluster")


MOST_SCANS = 200
KEYS_PER_SCAN = 1000
