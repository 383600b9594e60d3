"""What can be said of a server before its store is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg

from fencepost.errors import NothingStored
from fencepost.settings import redacted
from fencepost.store.formats import Contents, Present
from fencepost.store.postgres.connection import Connection, connect, wrapped
from fencepost.store.postgres.names import PostgresNames
from fencepost.store.postgres.schema import meta, namespaces, stored_format
from fencepost.store.preflight import (
    Finding,
    Preflight,
    nothing_there,
    ok,
    problem,
    unless_outdated,
    unless_restarted,
    warning,
)

MOST_COUNTED = 1_000_000


def preflight(url: str, namespace: str) -> Preflight:
    with _for_reading(url, namespace) as db:
        number, commit, fsync = db.one(
            "select current_setting('server_version'), current_setting('synchronous_commit'),"
            " current_setting('fsync')"
        )
        findings = _server_settings(number, commit, fsync, db.server.is_direct)
        if (found := stored_format(db)) is None:
            return nothing_there(redacted(url), namespace, namespaces(db), *findings)
        is_known = meta(db, "history") == db.server.history
        return unless_outdated(found, unless_restarted(is_known, *findings))


def contents(url: str, namespace: str) -> Contents:
    with _for_reading(url, namespace) as db:
        if (found := stored_format(db)) is None:
            raise NothingStored(redacted(url), namespace, namespaces(db))
        (jobs,) = db.one("select count(*) from {schema}.definitions")
        fires = 0
        for table in ("planned", "live", "final"):
            query = f"select count(*) from (select 1 from {{schema}}.{table} limit %s) counted"
            fires += db.one(query, MOST_COUNTED)[0]
        replicas = db.all("select id, version from {schema}.replicas order by id")
        counted = fires if fires < MOST_COUNTED else None
        return Contents(found, jobs, counted, tuple(Present(*row) for row in replicas))


@contextmanager
def _for_reading(url: str, namespace: str) -> Iterator[Connection]:
    try:
        with closing(connect(url, PostgresNames(namespace))) as db:
            yield db
    except psycopg.Error as error:
        raise wrapped(error, redacted(url)) from error


def _server_settings(version: str, commit: str, fsync: str, is_direct: bool) -> list[Finding]:
    name = f"PostgreSQL {version.split()[0]}"
    if fsync == "off":
        first = problem(f"{name}, fsync off: a crash may lose or destroy everything", "set fsync to on")
    else:
        first = ok(f"{name}: what was answered outlives a crash, each fire is claimed exactly once")
    findings = [first]
    if commit == "off":
        what = "synchronous_commit is off: our own steps wait for the disk all the same, your jobs' commits do not"
        remedy = "set it to on where a job's effect must outlive a crash, as with fire.fenced"
        findings.append(warning(what, remedy))
    if not is_direct:
        what = "there is a pooler in between: a leader that was killed is noticed after its TTL, not within a second"
        findings.append(warning(what, "if that is too late, give a URL that leads to the server itself"))
    return findings
