"""Statements over a network. Each request is a trip to the server and back, for which other replicas may wait: within a
transaction that writes, a statement whose result is not needed is sent with the next one whose result is."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from fencepost.store.sql.statements import Statements

LARGEST = 250_000
"""Characters of a statement with many rows: a megabyte at the most, which any server takes."""


class Result(NamedTuple):
    rows: Sequence[Any]
    changed: int


class GatheredStatements(Statements):
    """Values are part of the text."""

    AMONG = "in ?"
    _unsent: list[str] | None = None
    """What waits for the next request. None: outside of a transaction nothing waits."""

    def __init__(self, named: Callable[[str], str], escape: Callable[[Any], str]) -> None:
        """`named`: a statement with the names of tables for `{fires}`, `%s` for `?`, and `%%` for `%`."""
        self._named = named
        self._escape = escape
        self._ahead: dict[str, Sequence[Any]] = {}

    @abstractmethod
    def request(self, text: str) -> list[Result]:
        """Of several statements. If one fails those after it are not carried out."""

    # --- transactions ---------------------------------------------------------------------------------------

    def begin(self, statements: str, ahead: Sequence[str] = ()) -> Any:
        """The row that the last one gives. `ahead`: queries that are about to be made; their rows come along. The
        unit of work makes each once, and before it changes such a row."""
        results = self._ask("; ".join(map(self._text, (statements, *ahead))))
        found = results[len(results) - len(ahead) :]
        self._ahead = {query: result.rows for query, result in zip(ahead, found, strict=True)}
        self._unsent = []
        return results[-len(ahead) - 1].rows[0]

    def commit(self, statements: str) -> None:
        self._ask(self._text(statements))
        self._unsent, self._ahead = None, {}

    def rollback(self, statements: str) -> None:
        self._unsent, self._ahead = None, {}
        self._ask(self._text(statements))

    # --- statements -----------------------------------------------------------------------------------------

    def listed(self, values: Sequence[str]) -> list[str]:
        return list(values)

    def all(self, query: str, *values: Any) -> Sequence[Any]:
        if query in self._ahead:
            return self._ahead.pop(query)
        return self._ask(self._text(query, *values))[-1].rows

    def each(self, *queries: tuple[Any, ...]) -> Sequence[Sequence[Any]]:
        results = self._ask("; ".join(self._text(*query) for query in queries))
        return [result.rows for result in results[-len(queries) :]]

    def last_of(self, statements: str) -> Any:
        """Several statements in one request; the first row that the last one gives."""
        return next(iter(self._ask(self._text(statements))[-1].rows), None)

    def do(self, statement: str, *values: Any) -> int:
        return self._ask(self._text(statement, *values))[-1].changed

    def later(self, statement: str, *values: Any) -> None:
        self._send(self._text(statement, *values))

    def many(self, statement: str, rows: Sequence[Any]) -> None:
        """An insert of many rows is one statement, or a few."""
        before, row, after = _around_row(self._named(statement))
        texts = [row % tuple(map(self._escape, each)) for each in rows]
        for some in _pieces(texts, LARGEST if before else 0):
            self._send(f"{before}{', '.join(some)}{after}")

    def _text(self, statement: str, *values: Any) -> str:
        return self._named(statement) % tuple(map(self._escape, values))

    def _send(self, text: str) -> None:
        if self._unsent is None or sum(map(len, self._unsent)) + len(text) > LARGEST:
            self._ask(text)
        else:
            self._unsent.append(text)

    def _ask(self, text: str) -> list[Result]:
        """What has waited, and this."""
        if self._unsent:
            text, self._unsent = "; ".join([*self._unsent, text]), []
        return self.request(text)


@cache
def _around_row(statement: str) -> tuple[str, str, str]:
    """An insert before, at and after its row of values. Of other statements all is the row."""
    found = re.fullmatch(r"(insert .*? values )(\((?:%s, )*%s\))(.*)", statement, re.DOTALL)
    return (found[1], found[2], found[3]) if found else ("", statement, "")


def _pieces(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    """Of so many characters, but at least one text each."""
    piece, size = list[str](), 0
    for text in texts:
        if piece and size + len(text) > most:
            yield piece
            piece, size = [], 0
        piece.append(text)
        size += len(text)
    if piece:
        yield piece
