"""The tables, their version, and how a database is made or brought up to date.

All names begin with `fencepost_`, so that the application's own database can be used.
"""

from __future__ import annotations

import re
import sqlite3

from fencepost.errors import ConfigurationError

VERSION = 2

TABLES = ("meta", "jobs", "outcomes", "events", "targets", "fires", "replicas", "replica_targets")

# How the last run of each job ended.
OUTCOMES = """
create table {outcomes} (
    job_id text primary key, key text not null, state text not null, due_at integer not null,
    started_at integer not null, finished_at integer not null, replica text not null, reason text, error_line text,
    last_success_at integer, failures_in_a_row integer not null
) without rowid;
"""

# For those who look: each answers one part of a query in the order asked for (`find.py`).
INDEXES = """
create index {fires_open} on {fires} (due_at) where finished_at is null;
create index {fires_done} on {fires} (due_at) where finished_at is not null;
create index {fires_unsuccessful} on {fires} (due_at) where finished_at is not null and state <> 'succeeded';
create index {fires_queued} on {fires} (due_at) where state = 'queued';
create index {fires_stretches} on {fires} (last_due_at) where last_due_at is not null;
"""

# For pictures of one job: what did not succeed, however often it fires. Made whenever it is missing: replicas that do
# not know it keep it up to date all the same.
FAILURES = """
create index if not exists {fires_failures} on {fires} (job_id, due_at)
    where finished_at is not null and state <> 'succeeded'
"""

# Instants are microseconds since 1970. A fire is live until `finished_at` is set.
SCHEMA = """
create table {meta} (name text primary key, value text not null) without rowid;
create table {jobs} (
    id text primary key, target text not null, execute_on text not null,
    definition text not null, rest text not null,
    token integer not null, decided_through integer, tail text, look_at integer, plan_at integer,
    plain integer not null
) without rowid;
create index {jobs_look} on {jobs} (look_at, id) where look_at is not null;
create index {jobs_plan} on {jobs} (plan_at, id) where plan_at is not null;
create index {jobs_target} on {jobs} (target);
create table {events} (number integer primary key, job_id text not null, at integer not null, event text not null);
create index {events_job} on {events} (job_id, number);
create table {targets} (name text primary key, target text not null) without rowid;
create table {fires} (
    key text primary key, job_id text not null, due_at integer not null, scheduled integer not null,
    state text not null, reason text, refers_to text, count integer not null, last_due_at integer,
    token integer not null, replica text, claim_no integer not null, attempt integer not null,
    crashes integer not null, settled integer not null, not_before integer, started_at integer,
    finished_at integer, cancel_requested integer not null, extra text
) without rowid;
create index {fires_live} on {fires} (job_id, due_at) where finished_at is null;
create index {fires_active} on {fires} (job_id) where state in ('running', 'waiting');
create index {fires_running} on {fires} (replica) where state = 'running';
create index {fires_final} on {fires} (finished_at) where finished_at is not null;
create index {fires_past} on {fires} (job_id, due_at) where finished_at is not null;
create table {replicas} (id text primary key, replica text not null) without rowid;
create table {replica_targets} (
    replica text not null, target text not null, primary key (replica, target)
) without rowid;
"""


UPGRADES = {
    1: f"""{OUTCOMES}{INDEXES}
drop index if exists {{fires_due}};
insert into {{outcomes}} select job.id, run.key, run.state, run.due_at, run.started_at, run.finished_at, run.replica,
    run.reason, null,
    (select finished_at from {{fires}} where job_id = job.id and finished_at is not null and state = 'succeeded'
        order by due_at desc limit 1),
    (select count(*) from {{fires}} where job_id = job.id and finished_at is not null
        and state in ('failed', 'lost') and due_at > coalesce((select due_at from {{fires}} where job_id = job.id
            and finished_at is not null and state = 'succeeded' order by due_at desc limit 1), -1))
from {{jobs}} as job join {{fires}} as run on run.key = (select key from {{fires}} where job_id = job.id
    and finished_at is not null and attempt > 0 and replica is not null and started_at is not null
    order by due_at desc limit 1);
"""
}
"""By the version that is found: what brings it to the next."""

FOREIGN_TABLES = (
    "select 1 from sqlite_master where type = 'table' and name not like 'fencepost\\_%' escape '\\' limit 1"
)
"""Finds something if the database is not ours alone."""


class Names(dict[str, str]):
    """Table and index names of a namespace, quoted."""

    def __init__(self, namespace: str) -> None:
        prefix = "fencepost_" if namespace == "default" else f"fencepost_{namespace}_"
        named = re.findall(r"\{(\w+)\}", "".join([SCHEMA, OUTCOMES, INDEXES, FAILURES, *UPGRADES.values()]))
        super().__init__({name: f'"{prefix}{name}"' for name in named})
        self._statements: dict[str, str] = {}

    def sql(self, statement: str) -> str:
        """The statement with these names in it."""
        if statement not in self._statements:
            self._statements[statement] = statement.format_map(self)
        return self._statements[statement]


def namespaces(db: sqlite3.Connection) -> list[str]:
    """Those that exist in this database."""
    tables = db.execute("select name from sqlite_master where type = 'table'").fetchall()
    found = (re.fullmatch(r"fencepost_(?:(.+)_)?meta", name) for (name,) in tables)
    return sorted(each[1] or "default" for each in found if each)


def prepare(db: sqlite3.Connection, names: Names) -> None:
    """Create the tables, or check that this version can work with them. Inside a write transaction."""
    if not _exists(db, names["meta"]):
        _execute(db, names, SCHEMA + OUTCOMES + INDEXES + FAILURES)
        set_meta(db, names, "schema", str(VERSION))
        return
    found = int(meta(db, names, "schema") or 0)
    for version in range(found, VERSION):
        _execute(db, names, UPGRADES[version])
        set_meta(db, names, "schema", str(version + 1))
    if found > VERSION:
        raise ConfigurationError(
            f"this database has schema {found}, newer than the {VERSION} this version of Fencepost knows; "
            "upgrade Fencepost on this replica"
        )
    _execute(db, names, FAILURES)


def _execute(db: sqlite3.Connection, names: Names, script: str) -> None:
    """Not `executescript`, which would commit first."""
    for statement in names.sql(script).split(";"):
        if statement.strip():
            db.execute(statement)


def meta(db: sqlite3.Connection, names: Names, name: str) -> str | None:
    row = db.execute(f"select value from {names['meta']} where name = ?", (name,)).fetchone()
    return row[0] if row else None


def set_meta(db: sqlite3.Connection, names: Names, name: str, value: str) -> None:
    db.execute(f"insert or replace into {names['meta']} values (?, ?)", (name, value))


def _exists(db: sqlite3.Connection, quoted: str) -> bool:
    query = "select 1 from sqlite_master where type = 'table' and name = ?"
    return db.execute(query, (quoted.strip('"'),)).fetchone() is not None
