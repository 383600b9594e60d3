"""Triggers that belong to a caller's transaction: committed with it (`store/inbox.py`), or sent after its commit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from fencepost.errors import UsageError
from fencepost.store.base import NewFire, Store
from fencepost.store.inbox import NOT_HERE, Callers, Inbox, callers, inbox_of

ASKED = "fencepost.on_commit"
"""Where a session keeps what to call, and the transaction in which that was asked for."""


class Transactions:
    """One per scheduler. Everything happens on the caller's thread: its connection belongs there."""

    def __init__(self, store: Callable[[], Store], store_name: Callable[[], str]) -> None:
        self._store = store
        self._store_name = store_name
        self._lock = threading.Lock()
        self._inboxes: tuple[Store, Inbox | None] | None = None

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._inboxes = None

    def check(self, connection: Any) -> Callers:
        """Before anything is done."""
        found = callers(connection)
        inbox = self._inbox()
        if inbox is None or inbox.kind != found.kind:
            raise UsageError(NOT_HERE.format(store=self._store_name()))
        return found

    def write(self, connection: Any, fire: NewFire) -> None:
        found = self.check(connection)
        if found.is_async:
            raise UsageError(
                "this connection is async: `await scheduler.trigger(…)` in place of scheduler.sync"
            )
        statements, row = self._statements(fire), None
        try:
            while True:
                row = found.execute(*statements.send(row))
        except StopIteration:
            return

    async def write_async(self, connection: Any, fire: NewFire) -> None:
        found = self.check(connection)
        if not found.is_async:
            self.write(connection, fire)
            return
        statements, row = self._statements(fire), None
        try:
            while True:
                statement, values = statements.send(row)
                row = await found.execute(statement, values)
        except StopIteration:
            return

    def _statements(self, fire: NewFire) -> Any:
        inbox = self._inbox()
        assert inbox is not None
        with self._lock:
            inbox.prepare()
        return inbox.write(fire)

    def _inbox(self) -> Inbox | None:
        store = self._store()
        with self._lock:
            if self._inboxes is None or self._inboxes[0] is not store:
                self._inboxes = store, inbox_of(store)
            return self._inboxes[1]


def on_commit(connection: Any, call: Callable[[], Any]) -> None:
    """Call this once the caller's transaction is committed; never, if it is rolled back."""
    if hasattr(connection, "on_commit") and hasattr(connection, "vendor"):  # Django's
        connection.on_commit(call)
        return
    if "sqlalchemy" in sys.modules and type(connection).__module__.startswith("sqlalchemy."):
        _sqlalchemy(connection, call)
        return
    raise UsageError(
        f"{type(connection).__module__}.{type(connection).__qualname__} does not say when it has committed; give a "
        "connection of Django or a Session of SQLAlchemy, or call trigger(…) after the commit"
    )


def _sqlalchemy(connection: Any, call: Callable[[], Any]) -> None:
    from sqlalchemy import event
    from sqlalchemy.orm import Session

    session = getattr(connection, "sync_session", connection)
    if hasattr(session, "registry"):  # a scoped one
        session = session()
    if not isinstance(session, Session):
        raise UsageError(
            f"{type(connection).__qualname__} does not say when it has committed; give a Session"
        )
    asked_in = session.get_nested_transaction() or session.get_transaction()
    if ASKED not in session.info:
        session.info[ASKED] = []
        event.listen(session, "after_commit", _committed)
        event.listen(session, "after_soft_rollback", _rollback)
    session.info[ASKED].append((asked_in, call))


def _committed(session: Any) -> None:
    if session.in_nested_transaction():  # a savepoint's end is no commit
        return
    calls, session.info[ASKED] = session.info[ASKED], []
    for _, call in calls:
        call()


def _rollback(session: Any, ended: Any) -> None:
    """With a savepoint goes what was asked for inside of it."""
    asked = session.info[ASKED]
    session.info[ASKED] = [each for each in asked if ended.nested and each[0] is not ended]
