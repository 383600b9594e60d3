"""The SQLite store: one host, many processes, one file."""

from fencepost.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
