"""The PostgreSQL store: many machines, one primary.

`sql/` has the tables and the steps that are whole on the server, `rows.py` the shared operations over its rows.
Why it is done this way is told in docs/decisions/0018-postgresql.md.
"""

from fencepost.errors import missing_extra

try:
    import psycopg as _driver  # noqa: F401
except ImportError as error:
    raise missing_extra("a PostgreSQL store", error, "postgres") from error

from fencepost.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
