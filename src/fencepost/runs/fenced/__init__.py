"""Effects that happen once: `with fire.fenced(connection): …`.

`effect.py` says what is asked of the database, in which order, and what follows; `sqlite.py` and `postgres.py` say it
in the words of each and hold the transaction. Why it is so: `docs/decisions/0022-fenced-effects.md`.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from fencepost.errors import UsageError
from fencepost.runs.fenced.effect import Scope
from fencepost.runs.fire import Fire

__all__ = ["Scope", "fenced"]


def fenced(
    fire: Fire, scope: Scope, connection: Any, name: str
) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
    """The transaction of one effect of this fire, on this connection."""
    if isinstance(connection, sqlite3.Connection):
        from fencepost.runs.fenced import sqlite

        return sqlite.transaction(fire, scope, connection, name)
    psycopg = sys.modules.get("psycopg")  # a caller with such a connection has imported it
    if psycopg is not None and isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        from fencepost.runs.fenced import postgres

        in_async = isinstance(connection, psycopg.AsyncConnection)
        begin: Any = postgres.async_transaction if in_async else postgres.transaction
        return begin(fire, scope, connection, name)  # type: ignore[no-any-return]
    raise UsageError(
        f"{type(connection).__module__}.{type(connection).__qualname__} is not a connection that can be fenced; give "
        "one of sqlite3 or psycopg 3, as the driver made it, or compare fire.token in your own transaction"
    )
