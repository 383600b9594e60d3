"""The application's database, SQLite or PostgreSQL. The pipeline writes it, the web app only reads it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from fencepost import ConfigurationError
from stop_sync.tables import DYNAMIC, MARKS, STATIC, Dialect, create_table

PATIENCE_SECONDS = 10
"""A reader may meet the moment in which new rows take the place of the old ones."""

Rows = list[tuple[Any, ...]]
Ask = Callable[[str, Sequence[object]], Rows]
"""The rows of a query, in which question marks stand for the values."""


class NoData(Exception):
    """There is no database yet, or it has no tables: nothing has been imported."""


class Database:
    def __init__(self, url: str) -> None:
        self.dialect: Dialect = "sqlite" if url.startswith("sqlite:") else "postgresql"
        self._url = url
        self._path = Path(url.removeprefix("sqlite:///"))

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """A connection to a database that has its tables, with no transaction open."""
        if self.dialect == "sqlite":
            connection: Any = sqlite3.connect(self._path, timeout=PATIENCE_SECONDS)
        else:
            connection = _psycopg().connect(self._url, connect_timeout=PATIENCE_SECONDS)
        with closing(connection):
            for table in (*STATIC, *DYNAMIC):
                connection.execute(create_table(table, self.dialect))
            connection.commit()
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Ask]:
        """All that is asked inside is answered from one moment: before an import, or after it."""
        with self._reading_sqlite() if self.dialect == "sqlite" else self._reading_postgresql() as ask:
            yield ask

    def filled(self, tables: Sequence[str]) -> bool:
        """Whether each of them is there and has rows."""
        try:
            with self.reading() as ask:
                return all(ask(f"select 1 from {table} limit 1", ()) for table in tables)
        except NoData:
            return False

    @contextmanager
    def _reading_sqlite(self) -> Iterator[Ask]:
        if not self._path.exists():
            raise NoData
        address = f"{self._path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=PATIENCE_SECONDS)) as connection:
            connection.create_function(
                "lower", 1, _lower, deterministic=True
            )  # SQLite's own leaves Ä as it is
            connection.execute("begin")
            try:
                yield lambda query, values: connection.execute(query, values).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" in str(error):
                    raise NoData from error
                raise

    @contextmanager
    def _reading_postgresql(self) -> Iterator[Ask]:
        psycopg, marks = _psycopg(), MARKS[self.dialect]
        with psycopg.connect(self._url, connect_timeout=PATIENCE_SECONDS) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            try:
                yield lambda query, values: connection.execute(query.replace("?", marks), values).fetchall()
            except psycopg.errors.UndefinedTable as error:
                raise NoData from error


def _lower(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _psycopg() -> Any:
    try:
        import psycopg
    except ModuleNotFoundError:
        raise ConfigurationError(
            "STOP_SYNC_DATABASE_URL names PostgreSQL: `pip install 'fencepost[postgres]'`"
        ) from None
    return psycopg
