"""Store URLs: which store a setting means."""

from __future__ import annotations

from urllib.parse import urlsplit

from fencepost.errors import ConfigurationError
from fencepost.settings import did_you_mean, redacted
from fencepost.store.base import Store
from fencepost.store.memory import MemoryStore

SCHEMES = ("memory",)


def store_from_url(url: str) -> Store:
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryStore()
    raise ConfigurationError(
        f"no store for {redacted(url)!r}{did_you_mean(scheme, SCHEMES)}; "
        f"this version knows {', '.join(f'{name}://' for name in SCHEMES)}"
    )
