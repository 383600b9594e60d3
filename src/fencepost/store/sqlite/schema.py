"""The tables, their version, and how a database is made or brought up to date.

All names begin with `fencepost_`, so that the application's own database can be used.
"""

from __future__ import annotations

import re
import sqlite3

from fencepost.store.formats import Format, format_of
from fencepost.store.sql.meta import meta, prefix_of, set_meta
from fencepost.store.sqlite.statements import SqliteStatements

VERSION = 3

TABLES = ("meta", "jobs", "outcomes", "events", "targets", "fires", "replicas", "replica_targets", "entries")

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

# Rules and outbox of notifications. Made whenever it is missing: replicas that do not know it have no use for it.
ENTRIES = """
create table if not exists {entries} (key text primary key, entry text not null) without rowid
"""

# A job's turn among what is due. Nearly all jobs have the priority 0: the others are found by an index of their own.
PRIORITY = """
alter table {jobs} add column priority integer not null default 0;
create index {jobs_priority} on {jobs} (look_at) where priority <> 0 and look_at is not null;
"""

# What is due of one task, for replicas that cannot run most of what is due (`due.py`). Made whenever it is missing.
DUE_OF_TASK = """
create index if not exists {jobs_due} on {jobs} (target, look_at, id) where look_at is not null and priority = 0
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
""",
    2: PRIORITY,
}
"""By the version that is found: what brings it to the next."""
IN_WORDS = {
    1: "add the table of each job's last run, filled from the ledger, and indexes for those who look",
    2: "add the priority of jobs, and order what is due by it",
}
"""The same for people."""
ADDED = {
    "fires_failures": "add the index of fires that did not succeed",
    "entries": "add the table of notification rules and the outbox",
    "jobs_due": "add the index of what is due by task",
}
"""What is added without a new version: older replicas do not mind."""

FOREIGN_TABLES = (
    "select 1 from sqlite_master where type = 'table' and name not like 'fencepost\\_%' escape '\\' limit 1"
)
"""Finds something if the database is not ours alone."""


class SqliteNames(dict[str, str]):
    """Table and index names of a namespace, quoted."""

    def __init__(self, namespace: str) -> None:
        prefix = prefix_of(namespace)
        named = re.findall(
            r"\{(\w+)\}",
            "".join(
                [SCHEMA, PRIORITY, OUTCOMES, INDEXES, FAILURES, ENTRIES, DUE_OF_TASK, *UPGRADES.values()]
            ),
        )
        super().__init__({name: f'"{prefix}{name}"' for name in named})
        self._statements: dict[str, str] = {}

    def sql(self, statement: str) -> str:
        """The statement with these names in it."""
        if statement not in self._statements:
            self._statements[statement] = statement.format_map(self)
        return self._statements[statement]


def tables(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("select name from sqlite_master where type = 'table'").fetchall()]


def prepare(db: sqlite3.Connection, names: SqliteNames, place: str, converts: bool) -> None:
    """Create the tables, or check that this version can work with them, and convert them if it may. Inside a write
    transaction."""
    found = stored_format(db, names)
    if found is None:
        _execute(db, names, f"{SCHEMA}{PRIORITY}{OUTCOMES}{INDEXES}{FAILURES};{ENTRIES};{DUE_OF_TASK}")
        set_meta(SqliteStatements(db, names), "schema", str(VERSION))
        return
    found.check(place, converts)
    for version in range(found.stored, VERSION):
        _execute(db, names, UPGRADES[version])
        set_meta(SqliteStatements(db, names), "schema", str(version + 1))
    if found.steps:
        _execute(db, names, f"{FAILURES};{ENTRIES};{DUE_OF_TASK}")


def stored_format(db: sqlite3.Connection, names: SqliteNames) -> Format | None:
    """None: the namespace holds nothing."""
    if not _exists(db, names["meta"]):
        return None
    missing = [words for name, words in ADDED.items() if not _exists(db, names[name])]
    return format_of(int(meta(SqliteStatements(db, names), "schema") or 0), VERSION, IN_WORDS, missing)


def _execute(db: sqlite3.Connection, names: SqliteNames, script: str) -> None:
    """Not `executescript`, which would commit first."""
    for statement in names.sql(script).split(";"):
        if statement.strip():
            db.execute(statement)


def _exists(db: sqlite3.Connection, quoted: str) -> bool:
    query = "select 1 from sqlite_master where name = ?"
    return db.execute(query, (quoted.strip('"'),)).fetchone() is not None
