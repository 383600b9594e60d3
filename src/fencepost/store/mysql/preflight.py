"""What can be said of a server before its store is opened."""

from __future__ import annotations

from fencepost.errors import NothingStored
from fencepost.store.formats import Contents
from fencepost.store.mysql.connection import MysqlConnection
from fencepost.store.mysql.schema import TABLES, stored_format
from fencepost.store.preflight import Preflight, nothing_there, ok, problem, unless_outdated, unless_restarted
from fencepost.store.sql.contents import contents_of
from fencepost.store.sql.meta import meta, namespaces

MOST_COUNTED = 1_000_000


def preflight(db: MysqlConnection, place: str) -> Preflight:
    finding = ok(f"{db.version}: what was answered outlives a crash, each fire is claimed exactly once")
    if not db.is_durable:
        what = f"{db.version}: a crash may lose what was answered; replicas notice, and stop for one TTL"
        finding = problem(what, "set innodb_flush_log_at_trx_commit to 1")
    tables = db.all(TABLES)
    if (found := stored_format(db, tables)) is None:
        there = namespaces(name for name, *_ in tables)
        return nothing_there(place, db.names.namespace, there, finding)
    return unless_outdated(found, unless_restarted(meta(db, "history") == db.history, finding))


def contents(db: MysqlConnection, place: str) -> Contents:
    tables = db.all(TABLES)
    if (found := stored_format(db, tables)) is None:
        raise NothingStored(place, db.names.namespace, namespaces(name for name, *_ in tables))
    return contents_of(db, found, MOST_COUNTED)
