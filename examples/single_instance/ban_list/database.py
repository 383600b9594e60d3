"""The application's own SQLite file. Fencepost keeps its rows in it too, in tables that begin with `fencepost_`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

FILE = Path(os.environ.get("BAN_LIST_DB", "ban_list.db")).absolute()

# `runs` has no unique key: a fire that ran twice would be there twice.
TABLES = (
    "create table if not exists bans (address text primary key, until text not null)",
    "create table if not exists counts (at text not null, bans integer not null)",
    "create table if not exists runs (fire text not null, pid integer not null)",
)


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(FILE, timeout=10)) as db, db:
        yield db


def create() -> None:
    with transaction() as db:
        for table in TABLES:
            db.execute(table)


def ban(address: str, seconds: int) -> None:
    with transaction() as db:
        db.execute(
            "insert or replace into bans values (?, datetime('now', ? || ' seconds'))", (address, seconds)
        )


def banned() -> list[str]:
    with transaction() as db:
        return [address for (address,) in db.execute("select address from bans order by address")]


def lift(fire: str) -> None:
    with transaction() as db:
        db.execute("delete from bans where until <= datetime()")
        _note(db, fire)


def count(fire: str) -> None:
    with transaction() as db:
        db.execute("insert into counts select datetime(), count(*) from bans")
        _note(db, fire)


def runs() -> dict[str, list[int]]:
    """The latest fires, and in which processes each has run."""
    found: dict[str, list[int]] = {}
    with transaction() as db:
        for fire, pid in db.execute("select fire, pid from runs order by rowid desc limit 20"):
            found.setdefault(fire, []).append(pid)
    return found


def _note(db: sqlite3.Connection, fire: str) -> None:
    db.execute("insert into runs values (?, ?)", (fire, os.getpid()))
