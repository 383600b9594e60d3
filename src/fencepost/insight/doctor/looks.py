"""A look at a store before it is opened: which promise it keeps, and whether opening it would write.

Opening a store is more than looking. It makes tables where there are none, and whoever is the first after a restart
of the machine or the server puts that on record: replicas are declared dead, runs lost. That is for a replica to do.
So each kind of store is looked at over a connection of our own first, which only reads.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fencepost.errors import NothingStored, StoreUnavailable
from fencepost.insight.doctor.finding import Finding, ok, problem, warning
from fencepost.insight.doctor.subject import Subject
from fencepost.insight.existence import must_exist
from fencepost.settings import redacted
from fencepost.store.file import FileStore
from fencepost.store.file.folder import Folder
from fencepost.store.file.folder import namespaces as namespaces_in
from fencepost.store.file.journal import Journal
from fencepost.store.local import boot_id, refuse_network_file_system
from fencepost.store.sqlite import SqliteStore
from fencepost.store.sqlite.schema import FOREIGN_TABLES, Names, meta, namespaces
from fencepost.store.sqlite.store import wal_is_sound
from fencepost.store.unreadable import Registry

START = "start a replica: `fencepost run app:scheduler`"


@dataclass(frozen=True, slots=True)
class Look:
    findings: tuple[Finding, ...]
    may_open: bool = True
    """Whether there is a store, and opening it changes nothing."""
    nothing: NothingStored | None = None
    """The namespace holds nothing."""


async def look_at(scheduler: Subject) -> Look:
    """Raises what opening would, if the store cannot be reached or used."""
    store, namespace = scheduler.store, scheduler.settings.namespace
    if not store.shared:
        remedy = "for more than one process give a store that is shared, such as sqlite:///app.db"
        what = (
            "it lives inside one process: every other one runs every job as well, and none can look into it"
        )
        return Look((warning(what, remedy),), may_open=False)
    must_exist(store, scheduler.store_name)
    if isinstance(store, SqliteStore):
        return await asyncio.to_thread(_sqlite, store.path, namespace)
    if isinstance(store, FileStore):
        return await asyncio.to_thread(_file, store.path, namespace)
    return await _server(scheduler)


async def _server(scheduler: Subject) -> Look:
    url, namespace = scheduler.settings.store_url(), scheduler.settings.namespace
    if scheduler.store_name == redacted(url):
        scheme = urlsplit(url).scheme
        if scheme.startswith("postgres"):
            return await asyncio.to_thread(_postgres, url, namespace)
        if scheme.startswith(("redis", "valkey")):
            return await _redis(url, namespace)
    what = f"the code brings a store of its own, {scheduler.store_name}: opening it might write, so it stays closed"
    return Look((warning(what, "look at it by its URL: `fencepost doctor --store URL`"),), may_open=False)


# --- on this machine --------------------------------------------------------------------------------------


def _sqlite(path: Path, namespace: str) -> Look:
    refuse_network_file_system(path.parent)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            if namespace not in (found := namespaces(db)):
                return _nothing_there(f"sqlite:///{path}", namespace, found)
            (mode,) = db.execute("pragma journal_mode").fetchone()
            is_ours = db.execute(FOREIGN_TABLES).fetchone() is None
            boot = meta(db, Names(namespace), "boot")
    except sqlite3.OperationalError as error:
        raise StoreUnavailable(f"{path}: {error}") from error
    except sqlite3.DatabaseError:
        return Look(())  # it is damaged: opening it says so, and leaves it as it is
    journal = _journal(mode, is_ours)
    return _unless_rebooted(boot, Look((ok(_LOCAL), *journal.findings), journal.may_open))


def _journal(mode: str, is_ours: bool) -> Look:
    """A replica that starts here chooses the mode of a database that is ours alone. Then opening it is writing."""
    version, sound = sqlite3.sqlite_version, wal_is_sound(sqlite3.sqlite_version_info)
    uses_wal = mode == "wal"
    if uses_wal and not sound:
        what = f"the journal is WAL, and SQLite {version} here may corrupt it when several processes write"
        remedy = "use SQLite 3.51.3 or newer, " + (
            "or stop all replicas: the next one to start here leaves WAL"
            if is_ours
            else "or set journal_mode to delete: other tables are in there, so that is not ours to do"
        )
        return Look((problem(what, remedy),), may_open=not is_ours)
    if sound and not uses_wal and is_ours:
        what = f"the journal is {mode}: with SQLite {version} a replica that starts here changes it to WAL"
        remedy = "look from an environment as the replicas have it, with their version of SQLite"
        return Look((warning(what, remedy),), may_open=False)
    why = "sound in this version" if uses_wal else "safe, whatever the version; WAL is faster from 3.51.3 on"
    return Look((ok(f"SQLite {version}, journal {mode}: {why}"),))


def _file(path: Path, namespace: str) -> Look:
    refuse_network_file_system(path)
    folder = Folder(path / namespace)
    if namespace not in (found := namespaces_in(path)):
        return _nothing_there(f"file://{path}", namespace, found)
    journal = Journal(folder, snapshot_bytes=0, keep_fires=0, registry=Registry())
    try:
        journal.load()
        boot = journal.state.boot
    except OSError as error:
        raise StoreUnavailable(f"{folder.path}: {error}") from error
    finally:
        journal.end()
        folder.turn.let_go()
    return _unless_rebooted(boot, Look((ok(_LOCAL),)))


_LOCAL = (
    "a local disk: what was answered outlives a crash, each fire is claimed exactly once; one machine only"
)


def _unless_rebooted(boot: str | None, look: Look) -> Look:
    here = boot_id()
    if here is None or boot == here:
        return look
    what = (
        "this machine has started anew, and no replica since: nothing runs, and what ran then is not settled"
    )
    return Look((*look.findings, problem(what, START)), may_open=False)


def _nothing_there(place: str, namespace: str, others: Sequence[str], *findings: Finding) -> Look:
    return Look(findings, may_open=False, nothing=NothingStored(place, namespace, others))


# --- on servers -------------------------------------------------------------------------------------------


async def _redis(url: str, namespace: str) -> Look:
    from fencepost.store.redis.address import client_url, prefix_of
    from fencepost.store.redis.address import namespaces as namespaces_of
    from fencepost.store.redis.keys import Keys
    from fencepost.store.redis.link import Link
    from fencepost.store.redis.server import Server

    link, keys = Link(client_url(url), redacted(url)), Keys(prefix_of(url, namespace))
    await link.open()
    try:
        server = await Server.ask(link)
        server.refuse_what_cannot_work(link.name)
        history = await link.ask("HGET", keys.leader, "history")
        run = await link.ask("HGET", keys.meta, "run")
        others = await namespaces_of(link, url) if history is None else []
    finally:
        await link.close()
    promise = ok(server.promise()) if server.keeps_writes else warning(server.promise(), _KEEP)
    if history is None:
        return _nothing_there(link.name, namespace, others, promise)
    return _unless_restarted(run == server.run, promise)


_KEEP = "if a crash of the server must lose nothing: appendonly yes, appendfsync always, and no failover"


def _postgres(url: str, namespace: str) -> Look:
    import psycopg

    from fencepost.store.postgres.connection import connect, told
    from fencepost.store.postgres.names import Names as Schema
    from fencepost.store.postgres.schema import meta as value
    from fencepost.store.postgres.schema import namespaces, version

    try:
        with closing(connect(url, Schema(namespace))) as db:
            number, commit, fsync = db.one(
                "select current_setting('server_version'), current_setting('synchronous_commit'),"
                " current_setting('fsync')"
            )
            findings = _server_settings(number, commit, fsync, db.server.is_direct)
            if version(db) is None:
                return _nothing_there(redacted(url), namespace, namespaces(db), *findings)
            return _unless_restarted(value(db, "history") == db.server.history, *findings)
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


def _unless_restarted(is_known: bool, *findings: Finding) -> Look:
    if is_known:
        return Look(findings)
    what = "the server has restarted or failed over, and no replica has been there since: nothing runs"
    return Look((*findings, problem(what, START)), may_open=False)
