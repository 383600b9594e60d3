"""What the machine itself can do right now: the limits every other figure of the same run is set beside."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing

from bench.places import Place

from fencepost.store.sqlite.preflight import wal_is_sound


def fsyncs(place: Place, seconds: float) -> float:
    """Append 200 bytes, then fdatasync."""
    descriptor = os.open(place.folder / "raw.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def step() -> None:
        os.write(descriptor, b"x" * 200)
        os.fdatasync(descriptor)

    try:
        return _per_second(step, seconds)
    finally:
        os.close(descriptor)


def commits(place: Place, seconds: float) -> float:
    """Insert one row and commit, with the journal and the synchronous=FULL that the store uses here."""
    db = sqlite3.connect(place.folder / "raw.db", isolation_level=None)
    db.execute(f"pragma journal_mode = {'wal' if wal_is_sound(sqlite3.sqlite_version_info) else 'persist'}")
    db.execute("pragma synchronous = full")
    db.execute("create table raw (number integer primary key, text text)")

    def step() -> None:
        db.execute("begin immediate")
        db.execute("insert into raw (text) values (?)", ("x" * 200,))
        db.execute("commit")

    try:
        return _per_second(step, seconds)
    finally:
        db.close()


def sets(place: Place, seconds: float) -> float:
    """SET a key to 200 bytes, with the persistence of the server that is measured."""
    import redis

    with redis.Redis.from_url(place.url) as client:
        return _per_second(lambda: client.set("raw", "x" * 200), seconds)


def inserts(place: Place, seconds: float) -> float:
    """Insert one row and commit, in one round trip."""
    import psycopg

    with psycopg.connect(place.url, autocommit=True) as db:
        db.execute("create table if not exists raw (number bigserial primary key, text text)")
        return _per_second(lambda: db.execute("insert into raw (text) values (%s)", ("x" * 200,)), seconds)


def rows(place: Place, seconds: float) -> float:
    """The same on MySQL and MariaDB."""
    from fencepost.store.mysql.connection import MysqlConnection, MysqlNames

    with closing(MysqlConnection(place.url, MysqlNames("default"))) as db:
        db.do("create table if not exists raw (number bigint auto_increment primary key, text text)")
        return _per_second(lambda: db.do("insert into raw (text) values (?)", "x" * 200), seconds)


def handovers(place: Place, seconds: float) -> float:
    """From one event loop to another in its own thread and back: what a start costs on any store."""
    other = asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever, daemon=True)
    thread.start()

    async def measure() -> float:
        loop = asyncio.get_running_loop()
        done, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            answers = [loop.create_future() for _ in range(10)]
            for answer in answers:
                other.call_soon_threadsafe(loop.call_soon_threadsafe, answer.set_result, None)
            await asyncio.gather(*answers)
            done += len(answers)
        return done / (time.perf_counter() - begun)

    try:
        return asyncio.run(measure())
    finally:
        other.call_soon_threadsafe(other.stop)
        thread.join()
        other.close()


LIMIT_OF: dict[str, Callable[[Place, float], float]] = {
    "memory": handovers,
    "sqlite": commits,
    "file": fsyncs,
    "valkey": sets,
    "postgres": inserts,
    "mysql": rows,
}
"""Which one a store is set beside. Per second, by one process and one thread."""


def _per_second(step: Callable[[], object], seconds: float) -> float:
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        step()
        done += 1
    return done / (time.perf_counter() - begun)
