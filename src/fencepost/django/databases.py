"""A database of the project as the store: the URL that an alias of `DATABASES` stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.db import connections

from fencepost.errors import ConfigurationError, missing_extra
from fencepost.settings import did_you_mean

OTHER_STORE = 'set FENCEPOST["STORE"] to the URL of another store, such as redis://localhost:6379/0'


def is_url(store: str) -> bool:
    """A URL, and no alias."""
    return "://" in store or store.startswith("file:")


def check_alias(alias: str) -> None:
    known = list(connections.settings)
    if alias not in known:
        raise ConfigurationError(
            f'FENCEPOST["STORE"] is {alias!r}, and DATABASES has {", ".join(map(repr, known))}'
            f"{did_you_mean(alias, known)}; name one of them, or give a URL"
        )


def database_url(alias: str) -> str:
    """Asked for when the store is opened: under a test runner the alias stands for the test database."""
    check_alias(alias)
    connection = connections[alias]
    if connection.vendor == "postgresql":
        return _postgres_url(connection.settings_dict)
    if connection.vendor == "sqlite":
        return _sqlite_url(alias, connection)
    raise ConfigurationError(
        f"database {alias!r} is {connection.display_name}; Fencepost keeps its tables in PostgreSQL or SQLite: "
        f"{OTHER_STORE}"
    )


def _sqlite_url(alias: str, connection: Any) -> str:
    name = str(connection.settings_dict["NAME"])
    if connection.is_in_memory_db():
        raise ConfigurationError(
            f"database {alias!r} is in memory, where no other process sees it: use a file, or {OTHER_STORE}; in a "
            "test use fencepost.django.testing.virtual"
        )
    if set("?#") & set(name) or name.startswith("file:"):
        raise ConfigurationError(
            f"database {alias!r} is named by a URI, or has ? or # in its name: name a plain file, or {OTHER_STORE}"
        )
    return f"sqlite:///{Path(name).absolute()}"


def _postgres_url(database: dict[str, Any]) -> str:
    """With what of `OPTIONS` is for PostgreSQL itself; the rest is for Django or its driver."""
    known = _parameters()
    options = {name: value for name, value in database.get("OPTIONS", {}).items() if name in known}
    host = str(database.get("HOST") or "")
    if host.startswith("/"):
        options["host"] = host
        host = ""
    user = quote(str(database.get("USER") or ""), safe="")
    password = quote(str(database.get("PASSWORD") or ""), safe="")
    port = str(database.get("PORT") or "")
    if port and not host:
        options["port"] = port
        port = ""
    who = f"{user}:{password}@" if password else f"{user}@" if user else ""
    where = f"{host}:{port}" if port else host
    name = quote(str(database.get("NAME") or ""), safe="")
    query = urlencode(options, quote_via=quote)
    return f"postgresql://{who}{where}/{name}{'?' if query else ''}{query}"


def _parameters() -> frozenset[str]:
    try:
        from psycopg.pq import Conninfo
    except ImportError as error:
        raise missing_extra("a store in PostgreSQL", error, "postgres") from None
    return frozenset(each.keyword.decode() for each in Conninfo.get_defaults())
