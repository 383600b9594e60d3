"""Which addresses are on the public internet.

Decided here and not by `ipaddress.is_global`, whose lists differ between versions of Python. Every block of IANA's
special-purpose registries counts as internal, also the few that can be reached from everywhere: no publisher of data is
there. Of IPv6 nothing but 2000::/3 has been given out as global unicast.
"""

from __future__ import annotations

import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(address: str) -> bool:
    """In doubt it is not."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return not any(found in network for network in _SPECIAL_4)
    inside = _ipv4_inside(found)
    if inside is not None:
        return is_public(str(inside))
    return found in _UNICAST and not any(found in network for network in _SPECIAL_6)


def _ipv4_inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Where a router or the system itself would send packets for this address."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""Without it: ::/96 (with an IPv4 address inside, obsolete), 64:ff9b:1::/48 (NAT64 inside a network), 100::/64 and
100:0:0:1::/64 (discarded), 5f00::/16 (segment routing), fc00::/7, fe80::/10 and fec0::/10 (inside a network), ff00::/8
(multicast)."""

_SPECIAL_4: Final = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by the customers of a carrier
            "127.0.0.0/8",
            "169.254.0.0/16",  # one link; the metadata of clouds
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # multicast tunnels
            "192.88.99.0/24",  # 6to4 relays, obsolete
            "192.168.0.0/16",
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
        ),
    )
)
_SPECIAL_6: Final = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocol assignments; Teredo, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)
