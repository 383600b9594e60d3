"""Store URLs: which store a setting means."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from fencepost.errors import ConfigurationError
from fencepost.settings import SCHEMES, checked_store_url, did_you_mean, scheme_of
from fencepost.store.base import Store
from fencepost.store.memory import MemoryStore


def store_from_url(url: str, namespace: str = "default") -> Store:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`, `file:///absolute/folder`, `redis://host:6379/0`,
    `postgresql://user@host/database`, `memory://`."""
    scheme = scheme_of(checked_store_url(url))
    if scheme == "memory":
        return MemoryStore()
    if scheme == "sqlite":
        from fencepost.store.sqlite import SqliteStore

        return SqliteStore(_path(url), namespace)
    if scheme == "file":
        from fencepost.store.file import FileStore

        return FileStore(_folder(url), namespace)
    if scheme in ("redis", "rediss", "valkey", "valkeys"):
        from fencepost.store.redis import RedisStore

        return RedisStore(url, namespace)
    if scheme in ("postgresql", "postgres"):
        from fencepost.store.postgres import PostgresStore

        return PostgresStore(url, namespace)
    raise ConfigurationError(
        f"no store for {scheme}:// URLs{did_you_mean(scheme, SCHEMES)}; "
        f"this version knows {', '.join(f'{name}://' for name in SCHEMES)}"
    )


def _path(url: str) -> Path:
    path = urlsplit(url).path.removeprefix("/")
    if not path or urlsplit(url).netloc:
        shown = _shown(url)
        raise ConfigurationError(
            f"the store URL ({shown}) names no file; use three slashes for a path from here (sqlite:///app.db), "
            "four for one from the root (sqlite:////var/lib/app.db)"
        )
    return Path(path)


def _folder(url: str) -> Path:
    """As everywhere else a file URL's path begins at the root; `file:jobs` is a folder from here."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if not path.strip("/") or parts.netloc:
        shown = _shown(url)
        raise ConfigurationError(
            f"the store URL ({shown}) names no folder; use three slashes for one from the root "
            "(file:///var/lib/fencepost), none for one from here (file:jobs)"
        )
    return Path("/" + path.lstrip("/")) if path.startswith("/") else Path(path)


def _shown(url: str) -> str:
    """Whatever stands where a host would is not shown: it may be a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://…" if parts.netloc else url
