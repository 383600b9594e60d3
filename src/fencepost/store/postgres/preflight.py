"""What can be said of a server before its store is opened."""

from __future__ import annotations

from contextlib import closing

import psycopg

from fencepost.settings import redacted
from fencepost.store.postgres.connection import connect, told
from fencepost.store.postgres.names import Names
from fencepost.store.postgres.schema import meta, namespaces, version
from fencepost.store.preflight import (
    Finding,
    Preflight,
    nothing_there,
    ok,
    problem,
    unless_restarted,
    warning,
)


def preflight(url: str, namespace: str) -> Preflight:
    try:
        with closing(connect(url, Names(namespace))) as db:
            number, commit, fsync = db.one(
                "select current_setting('server_version'), current_setting('synchronous_commit'),"
                " current_setting('fsync')"
            )
            findings = _server_settings(number, commit, fsync, db.server.is_direct)
            if version(db) is None:
                return nothing_there(redacted(url), namespace, namespaces(db), *findings)
            return unless_restarted(meta(db, "history") == db.server.history, *findings)
    except psycopg.Error as error:
        raise told(error, redacted(url)) from error


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
