"""Store URLs: which store a setting means."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from fencepost.errors import ConfigurationError
from fencepost.model.integrations import load, registered
from fencepost.settings import REDIS_SCHEMES, SCHEMES, checked_store_url, did_you_mean, scheme_of
from fencepost.store.base import Store
from fencepost.store.memory import MemoryStore

STORES = "fencepost.stores"


def store_from_url(url: str, namespace: str = "default") -> Store:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`, `file:///absolute/folder`, `redis://host:6379/0`,
    `redis+sentinel://host:26379/service/0`, `redis+cluster://host:6379`, `postgresql://user@host/database`,
    `mysql://user@host/database`, `memory://`; or of a scheme that another package has registered."""
    scheme = scheme_of(checked_store_url(url))
    if scheme == "memory":
        return MemoryStore()
    if scheme in ("sqlite", "file"):
        _needs_file_locks(scheme)
    if scheme == "sqlite":
        from fencepost.store.sqlite import SqliteStore

        return SqliteStore(_path(url), namespace)
    if scheme == "file":
        from fencepost.store.file import FileStore

        return FileStore(_folder(url), namespace)
    if scheme in REDIS_SCHEMES:
        from fencepost.store.redis import RedisStore

        return RedisStore(url, namespace)
    if scheme in ("postgresql", "postgres"):
        from fencepost.store.postgres import PostgresStore

        return PostgresStore(url, namespace)
    if scheme in ("mysql", "mariadb"):
        from fencepost.store.mysql import MysqlStore

        return MysqlStore(url, namespace)
    return _registered_store(scheme, url, namespace)


def _registered_store(scheme: str, url: str, namespace: str) -> Store:
    """Of another package, which names the scheme as an entry point."""
    others = registered(STORES)
    if scheme not in others:
        known = (*SCHEMES, *sorted(others))
        raise ConfigurationError(
            f"no store for {scheme}:// URLs{did_you_mean(scheme, known)}; this installation knows "
            f"{', '.join(f'{name}://' for name in known)}, and packages add others as entry points of {STORES!r}"
        )
    try:
        store = load(STORES, scheme)(url, namespace)
    except ImportError as error:
        raise ConfigurationError(f"the store for {scheme}:// URLs cannot be imported: {error}") from error
    if not isinstance(store, Store):
        raise ConfigurationError(
            f"the entry point {scheme!r} of {STORES!r} gave a {type(store).__name__} in place of a Store"
        )
    return store


def _needs_file_locks(scheme: str) -> None:
    try:
        import fcntl  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            f"{scheme}:// stores need file locks (flock), which this system does not have; use redis://, valkey://, "
            "postgresql:// or mysql://, or memory:// for a single process"
        ) from None


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
