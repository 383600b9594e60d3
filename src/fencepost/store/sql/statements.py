"""Statements within one transaction. `{fires}` stands for the name of a table, `?` for a value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any


class Statements(ABC):
    AMONG: str
    """Comes after a column whose value must be one of several, which are given as `listed` makes them."""

    @abstractmethod
    def listed(self, values: Sequence[str]) -> Any: ...

    @abstractmethod
    def do(self, statement: str, *values: Any) -> int:
        """The number of rows that it changed."""

    @abstractmethod
    def many(self, statement: str, rows: Sequence[Any]) -> None: ...

    @abstractmethod
    def all(self, query: str, *values: Any) -> Sequence[Any]: ...

    @abstractmethod
    def put(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        """Insert whole rows, in place of those with the same key, which is the first column."""

    @abstractmethod
    def change(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        """These columns of rows that exist; the first is the key."""

    @abstractmethod
    def add_missing(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        """Insert those whose key, the first column, is not there."""

    def one(self, query: str, *values: Any) -> Any:
        return next(iter(self.all(query, *values)), None)

    def each(self, *queries: tuple[Any, ...]) -> Sequence[Sequence[Any]]:
        """The rows of several queries, each with its values. A store may ask for all of them in one request."""
        return [self.all(*query) for query in queries]

    def later(self, statement: str, *values: Any) -> None:
        """A statement whose result is not needed. A store may send it with the next one."""
        self.do(statement, *values)

    def among(self, query: str, values: Sequence[str], *others: Any) -> Sequence[Any]:
        """`query` ends with the column whose value must be one of these; `others` stand before it."""
        return self.all(f"{query} {self.AMONG}", *others, self.listed(values)) if values else ()

    def found(self, name: str, query: str, *values: Any) -> Sequence[Any]:
        """Many jobs or fires (`name`)."""
        return self.all(query, *values)


@cache
def into(table: str, columns: tuple[str, ...]) -> str:
    """The part of an insert that all databases have in common."""
    names, marks = ", ".join(f"`{name}`" for name in columns), ", ".join("?" * len(columns))
    return f"into {{{table}}} ({names}) values ({marks})"
