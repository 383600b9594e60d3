"""One row of a store made unreadable, as damage or another program would: how, by store and by kind of row."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from redis import Redis

from fencepost.store.base import Store
from fencepost.store.file import FileStore
from fencepost.store.file.lines import line
from fencepost.store.mysql import MysqlStore
from fencepost.store.mysql.connection import MysqlConnection, MysqlNames
from fencepost.store.postgres import PostgresStore
from fencepost.store.redis import RedisStore
from fencepost.store.sqlite import SqliteStore
from fencepost.testing.conformance import HandClock

KINDS = (
    "definition",
    "state",
    "live fire",
    "ended fire",
    "target",
    "event",
    "replica",
    "lease",
    "zone",
    "trigger type",
)
"""The last two are sound, and name what this host does not know."""
FOREIGN = {
    "zone": {"type": "cron", "expression": "* * * * *", "tz": "Mars/Phobos"},
    "trigger type": {"type": "moonrise", "phase": "full"},
}
BAD, REPLICA, TARGET = "bad", "a", "play"


@dataclass
class Place:
    """A store, and a way around it."""

    url: str
    make: Callable[[], Store]
    damage: Callable[[str], None]
    clock: HandClock
    repair: Callable[[], None]
    """Of a definition or a live fire that was damaged: as it was."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        store = self.make()
        await store.open()
        try:
            yield store
        finally:
            await store.close()


def foreign(text: str, kind: str) -> str:
    """A definition or a state with another trigger in it."""
    value = json.loads(text)
    if "trigger" in value:
        value["trigger"] = FOREIGN[kind]
    for segment in value.get("segments", ()):
        segment["trigger"] = FOREIGN[kind]
    return json.dumps(value)


def sqlite_place(folder: Path) -> Place:
    path, clock = folder / "fencepost.db", HandClock()
    statements = {
        "definition": """update fencepost_jobs set definition = '{"id":' where id = 'bad'""",
        "state": "update fencepost_jobs set rest = '[]' where id = 'bad'",
        "live fire": "update fencepost_fires set extra = '{' where finished_at is null and job_id = 'bad'",
        "ended fire": "update fencepost_fires set extra = '?' where finished_at is not null and job_id = 'bad'",
        "target": "update fencepost_targets set target = '?' where name = 'play'",
        "event": "update fencepost_events set event = '?' where job_id = 'bad'",
        "replica": """update fencepost_replicas set replica = '{"ttl": ' where id = 'a'""",
        "lease": """update fencepost_meta set value = '{"term": "x"}' where name = 'leader'""",
    }

    jobs = "select definition, id from fencepost_jobs where id = 'bad'"
    fires = "select extra, key from fencepost_fires where finished_at is null and job_id = 'bad'"
    kept: list[list[Any]] = [[], []]

    def damage(kind: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            kept[:] = db.execute(jobs).fetchall(), db.execute(fires).fetchall()
            if kind in statements:
                assert db.execute(statements[kind]).rowcount > 0
                return
            row = db.execute("select definition, rest from fencepost_jobs where id = 'bad'").fetchone()
            texts = [foreign(text, kind) for text in row]
            db.execute("update fencepost_jobs set definition = ?, rest = ? where id = 'bad'", texts)

    def repair() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.executemany("update fencepost_jobs set definition = ? where id = ?", kept[0])
            db.executemany("update fencepost_fires set extra = ? where key = ?", kept[1])

    return Place(f"sqlite:///{path}", lambda: SqliteStore(path, clock=clock), damage, clock, repair)


def postgres_place(url: str) -> Place:
    clock = HandClock()
    statements = {
        "definition": "update fencepost.definitions set definition = '{\"id\":' where job_id = 'bad'",
        "state": "update fencepost.definitions set rest = '[]' where job_id = 'bad'",
        "live fire": "update fencepost.live set progress = '{' where job_id = 'bad'",
        "ended fire": "update fencepost.final set extra = '?' where job_id = 'bad'",
        "target": "update fencepost.targets set gaps = '?' where name = 'play'",
        "event": "update fencepost.events set event = '?' where job_id = 'bad'",
        "replica": "update fencepost.replicas set joined_at = 9223372036854775807 where id = 'a'",
        "lease": "update fencepost.lease set standing = '?'",
    }

    jobs = "select definition, job_id from fencepost.definitions where job_id = 'bad'"
    fires = "select progress, job_id, due_at from fencepost.live where job_id = 'bad'"
    kept: list[list[Any]] = [[], []]

    def damage(kind: str) -> None:
        with psycopg.connect(url, autocommit=True) as db:
            kept[:] = db.execute(jobs).fetchall(), db.execute(fires).fetchall()
            if kind in statements:
                assert db.execute(statements[kind].encode()).rowcount > 0
                return
            [row] = db.execute(
                "select definition, rest from fencepost.definitions where job_id = 'bad'"
            ).fetchall()
            texts = [foreign(text, kind) for text in row]
            db.execute(
                "update fencepost.definitions set definition = %s, rest = %s where job_id = 'bad'", texts
            )

    def repair() -> None:
        with psycopg.connect(url, autocommit=True) as db, db.cursor() as cursor:
            cursor.executemany("update fencepost.definitions set definition = %s where job_id = %s", kept[0])
            cursor.executemany(
                "update fencepost.live set progress = %s where job_id = %s and due_at = %s", kept[1]
            )

    return Place(url, lambda: PostgresStore(url, clock=clock), damage, clock, repair)


def mysql_place(url: str) -> Place:
    clock = HandClock()
    statements = {
        "definition": """update {jobs} set definition = '{"id":' where id = 'bad'""",
        "state": "update {jobs} set rest = '[]' where id = 'bad'",
        "live fire": "update {fires} set extra = '{' where finished_at is null and job_id = 'bad'",
        "ended fire": "update {fires} set extra = '!' where finished_at is not null and job_id = 'bad'",
        "target": "update {targets} set target = '!' where name = 'play'",
        "event": "update {events} set event = '!' where job_id = 'bad'",
        "replica": """update {replicas} set replica = '{"ttl": ' where id = 'a'""",
        "lease": """update {meta} set value = '{"term": "x"}' where name = 'leader'""",
    }
    kept: list[Sequence[Any]] = [[], []]

    def damage(kind: str) -> None:
        with closing(MysqlConnection(url, MysqlNames("default"))) as db:
            kept[0] = db.all("select id, definition from {jobs} where id = 'bad'")
            kept[1] = db.all("select extra, `key` from {fires} where finished_at is null and job_id = 'bad'")
            if kind in statements:
                assert db.do(statements[kind]) > 0
                return
            row = db.one("select definition, rest from {jobs} where id = 'bad'")
            texts = [foreign(text, kind) for text in row]
            db.do("update {jobs} set definition = ?, rest = ? where id = 'bad'", *texts)

    def repair() -> None:
        with closing(MysqlConnection(url, MysqlNames("default"))) as db:
            for id, definition in kept[0]:
                db.do("update {jobs} set definition = ? where id = ?", definition, id)
            for extra, key in kept[1]:
                db.do("update {fires} set extra = ? where `key` = ?", extra, key)

    return Place(url, lambda: MysqlStore(url, clock=clock), damage, clock, repair)


def redis_place(url: str) -> Place:
    p, clock = "fencepost:default", HandClock()
    kept, fires = list[str](), dict[str, str]()

    def damage(kind: str) -> None:
        with closing(Redis.from_url(url, decode_responses=True)) as db:
            kept[:] = [str(db.hget(f"{p}:jobs", BAD) or "")]
            fires.update({key: str(db.get(key)) for key in _redis_live(db, p)})
            _redis_damage(db, kind)

    def repair() -> None:
        with closing(Redis.from_url(url, decode_responses=True)) as db:
            definition, _, rest = kept[0].partition("\n")
            _redis_write(db, p, definition, rest)
            for key, row in fires.items():
                db.set(key, row, xx=True)

    return Place(url, lambda: RedisStore(url, clock=clock, incarnation=0), damage, clock, repair)


def _redis_damage(db: Any, kind: str) -> None:
    p = "fencepost:default"
    definition, _, rest = (db.hget(f"{p}:jobs", BAD) or "").partition("\n")
    if kind == "definition":
        _redis_write(db, p, '{"id":', rest)
    elif kind == "state":
        _redis_write(db, p, definition, "[]")
    elif kind in FOREIGN:
        _redis_write(db, p, foreign(definition, kind), foreign(rest, kind))
    elif kind == "live fire":
        [key] = _redis_live(db, p)
        db.set(key, f"1 {{{db.get(key)}")
    elif kind == "ended fire":
        [(row, due), *_] = db.zrange(f"{p}:done:{BAD}", 0, -1, withscores=True)
        db.zrem(f"{p}:done:{BAD}", row)
        db.zadd(f"{p}:done:{BAD}", {f"1 {{?{row}": due})
    elif kind == "target":
        db.hset(f"{p}:targets", TARGET, '{"gaps":')
    elif kind == "event":
        db.lset(f"{p}:events:{BAD}", 0, "?")
    elif kind == "replica":
        db.hset(f"{p}:replica:{REPLICA}", mapping={"renewals": "x", "text": "?"})
    elif kind == "lease":
        db.hset(f"{p}:leader", "term", "x")


def _redis_live(db: Any, p: str) -> list[str]:
    """The rows of its runs, and of what waits."""
    return [*db.keys(f"{p}:job:{BAD}:*"), *db.keys(f"{p}:fire:{BAD}:*")]


def _redis_write(db: Any, p: str, definition: str, rest: str) -> None:
    """With its digest, or what is remembered of the job would do."""
    from fencepost.store.redis.values import digest

    cold = f"{definition}\n{rest}"
    db.hset(f"{p}:jobs", BAD, cold)
    db.hset(f"{p}:hot:{BAD}", "text", digest(cold))


def file_place(folder: Path) -> Place:
    """A line of the log that is whole, and says what cannot be."""
    path, clock = folder / "store", HandClock()
    log = path / "default" / "log-1"

    def rows_logged() -> list[Any]:
        lines = log.read_bytes().splitlines()[1:]
        return [row for each in lines for row in json.loads(each[9:])["rows"]]

    def append(row: list[Any]) -> None:
        with log.open("ab") as file:
            file.write(line({"at": 0, "do": ["damage"], "rows": [row]}))

    def repair() -> None:
        rows = rows_logged()
        jobs = [row for row in rows if row[:2] == ["job", BAD]]
        append(["job", BAD, {"job": jobs[0][2]["job"]}, *jobs[-1][3:]])
        attempts = {row[1]: row[2].get("attempts", []) for row in rows if row[0] == "fire"}
        for key in [key for key, last in attempts.items() if last == 7]:
            said = [row[2]["attempts"] for row in rows if row[:2] == ["fire", key] and "attempts" in row[2]]
            append(["fire", key, {"attempts": said[-2] if len(said) > 1 else []}])

    def damage(kind: str) -> None:
        rows = rows_logged()

        def last(*begin: str) -> list[Any]:
            return next(list(row) for row in reversed(rows) if tuple(row[: len(begin)]) == begin)

        if kind in ("definition", "state"):
            job = last("job", BAD)
            job[2] = {"job": {"id": BAD}} if kind == "definition" else {"segments": 7}
        elif kind in FOREIGN:
            job = next(list(row) for row in rows if row[:2] == ["job", BAD])
            whole = json.loads(json.dumps(job[2]))
            whole["job"]["trigger"] = FOREIGN[kind]
            for segment in whole["segments"]:
                segment["trigger"] = FOREIGN[kind]
            job = ["job", BAD, {"job": whole["job"], "segments": whole["segments"]}, *last("job", BAD)[3:]]
        elif kind in ("live fire", "ended fire"):
            keys = [
                row[1] for row in rows if row[0] == "fire" and row[1].startswith(BAD) and "token" in row[2]
            ]
            job = ["fire", keys[0], {"attempts": 7}]
        elif kind == "event":
            job = ["event", BAD, {"kind": 7}]
        else:
            job = {
                "target": ["target", TARGET, {"gaps": 7}],
                "replica": ["replica", REPLICA, {"joined_at": "?"}],
                "lease": ["leader", "", {"term": "x"}],
            }[kind]
        append(job)

    return Place(f"file://{path}", lambda: FileStore(path, clock=clock), damage, clock, repair)
