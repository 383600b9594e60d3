"""The PostgreSQL store: many machines, one primary.

`sql/` has the tables and the steps that are whole on the server (`fast.py` calls them), `steps.py` the shared
operations over its rows, and `paths.py` says which of the two an operation takes.
Why it is done this way is told in docs/decisions/0018-postgresql.md.
"""

from fencepost.errors import missing_extra

try:
    import psycopg as _driver  # noqa: F401
except ImportError as error:
    raise missing_extra("a PostgreSQL store", error, "postgres") from error

from fencepost.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
