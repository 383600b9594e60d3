"""The tables and their version: how they are made, and what can be said of them before a store is opened.

All names begin with `fencepost_`, so that the application's own database can be used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fencepost.errors import ConfigurationError, NothingStored, StoreUnavailable
from fencepost.store.formats import Contents, Format, format_of
from fencepost.store.mysql.connection import MysqlConnection
from fencepost.store.preflight import Preflight, nothing_there, ok, problem, unless_outdated, unless_restarted
from fencepost.store.sql.contents import contents_of
from fencepost.store.sql.meta import meta, namespaces, set_meta

VERSION = 1
MOST_COUNTED = 1_000_000
"""Fires."""
ENGINE, COLLATION = "InnoDB", "utf8mb4_bin"

# Instants are microseconds since 1970. `turn` has one row: who locks it may write, until the commit. The indexes of
# fires begin with the state: there are no partial ones, and each state is a part of the ledger.
SCHEMA = """
create table if not exists {meta} (name varchar(50) primary key, value mediumtext not null);
create table if not exists {turn} (id tinyint primary key, hints bigint not null);
create table if not exists {jobs} (
    id varchar(200) primary key, target varchar(450), execute_on enum('any', 'leader'), definition mediumtext,
    rest mediumtext, token bigint not null, decided_through bigint, tail varchar(500), look_at bigint, plan_at bigint,
    plain bool not null, priority int not null default 0,
    ranked_at bigint generated always as (if(priority = 0, null, look_at)) stored,
    index look (look_at), index ranked (ranked_at), index plan (plan_at), index target (target)
);
create table if not exists {outcomes} (
    job_id varchar(200) primary key, `key` varchar(500) not null, state varchar(20) not null, due_at bigint not null,
    started_at bigint not null, finished_at bigint not null, replica varchar(500) not null, reason text,
    error_line text, last_success_at bigint, failures_in_a_row bigint not null
);
create table if not exists {events} (
    number bigint auto_increment primary key, job_id varchar(200) not null, at bigint not null,
    event mediumtext not null, index job (job_id, number)
);
create table if not exists {targets} (name varchar(450) primary key, target mediumtext not null);
create table if not exists {fires} (
    `key` varchar(450) primary key, job_id varchar(200) not null, due_at bigint not null, scheduled bool not null,
    state enum('pending', 'queued', 'running', 'waiting', 'succeeded', 'failed', 'skipped', 'missed', 'lost',
        'cancelled') not null,
    reason text, refers_to varchar(500), count bigint not null, last_due_at bigint, token bigint not null,
    replica varchar(500), claim_no bigint not null, attempt bigint not null, crashes bigint not null,
    settled bigint not null, not_before bigint, started_at bigint, finished_at bigint, cancel_requested bool not null,
    extra longtext, index job (job_id, state, due_at), index state (state, due_at), index done (finished_at),
    index stretches (last_due_at)
);
create table if not exists {replicas} (id varchar(500) primary key, replica mediumtext not null);
create table if not exists {replica_targets} (
    replica varchar(300) not null, target varchar(450) not null, primary key (replica, target), index target (target)
);
create table if not exists {entries} (`key` varchar(700) primary key, entry mediumtext not null);
create table if not exists {beacons} (
    replica varchar(500) primary key, name varchar(64) not null, started bigint not null
);
insert ignore into {turn} values (1, 0)
"""
TABLES = "select table_name, engine, table_collation from information_schema.tables where table_schema = database()"


def prepare(db: MysqlConnection, place: str, creates: bool) -> None:
    """Create the tables, or check that this version can work with them."""
    tables = db.all(TABLES)
    if (found := stored_format(db, tables)) is not None:
        found.check(place, creates)
    elif not creates:
        raise NothingStored(place, db.names.namespace, namespaces(name for name, *_ in tables))
    if found is None:
        # One replica at a time: a statement that changes tables ends a transaction.
        name = f"{db.names.prefix}tables/{db.database}"[:64]
        if db.one("select get_lock(?, ?)", name, db.patience)[0] != 1:
            raise StoreUnavailable(f"{place}: another replica is making the tables")
        try:
            _make(db)
        finally:
            db.one("select release_lock(?)", name)
        tables = db.all(TABLES)
    for table, engine, collation in tables:
        ours = table.startswith(db.names.prefix) and table.removeprefix(db.names.prefix) in _OURS
        if ours and (engine, collation) != (ENGINE, COLLATION):
            raise ConfigurationError(
                f"{place}: table {table} is {engine} with {collation}; transactions, and ids that differ in case, need "
                f"alter table `{table}` engine={ENGINE}, convert to character set utf8mb4 collate {COLLATION}"
            )


def _make(db: MysqlConnection) -> None:
    options = f" engine={ENGINE} default charset=utf8mb4 collate={COLLATION} row_format=dynamic"
    for statement in SCHEMA.split(";"):
        db.do(statement + (options if "create table" in statement else ""))
    if stored_format(db, db.all(TABLES)) is None:
        set_meta(db, "history", db.history)
    set_meta(db, "schema", str(VERSION))  # the last: without it they are made again


_OURS = {name.replace("_", "") for name in re.findall(r"create table if not exists \{(\w+)\}", SCHEMA)}


def stored_format(db: MysqlConnection, tables: Sequence[Any]) -> Format | None:
    """None: the namespace holds nothing, or was not finished."""
    there = namespaces(name for name, *_ in tables)
    stored = meta(db, "schema") if db.names.namespace in there else None
    return None if stored is None else format_of(int(stored), VERSION, {})


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
