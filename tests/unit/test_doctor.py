"""`fencepost doctor`: each finding provoked for real, the exit codes, and that it only looks."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from fencepost import cron, every
from fencepost.cli import outcome
from fencepost.insight.doctor.finding import MOST_LISTED
from fencepost.model import Job
from fencepost.store.base import Campaign, ChangeJob, HeartbeatRequest, PutJob, Store
from fencepost.store.file import FileStore
from fencepost.store.postgres import PostgresStore
from fencepost.store.redis import RedisStore
from fencepost.store.sqlite import SqliteStore
from tests.servers.redislike import RedisServer, valkey
from tests.unit.test_cli_commands import Hand, Story, at, key

WRONG, USAGE, UNAVAILABLE, CONFIGURATION = 1, 64, 69, 78

COMMAND = importlib.import_module("fencepost.cli.doctor")
"""The module: in the package the name means the command."""

Work = Callable[[Store], Awaitable[Any]]


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["findings"]
        return found

    def of(self, section: str, level: str | None = None) -> str:
        """Those of a section, as text."""
        chosen = [each for each in self.findings if each["section"] == section]
        return "\n".join(
            f"{each['what']} -> {each['remedy']}" for each in chosen if level in (None, each["level"])
        )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("story") / "story.db"
    asyncio.run(Story(path).tell())
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, and an environment that says nothing."""
    for name in list(os.environ):
        if name.startswith(("FENCEPOST_", "KUBERNETES_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hand:
    """Of this host, and so of the stores on it."""
    hand = Hand(at("04:12"))
    monkeypatch.setattr("fencepost.store.sqlite.store.SystemClock", lambda: hand)
    monkeypatch.setattr(COMMAND, "SystemClock", lambda: hand)
    return hand


@pytest.fixture
def database(told: Path, folder: Path, clock: Hand, monkeypatch: pytest.MonkeyPatch) -> Path:
    """r3 is up and leads; nobody knows the task of `strange`."""
    monkeypatch.setenv("FENCEPOST_STORE", "sqlite:///app.db")
    return Path(shutil.copy(told, folder / "app.db"))


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def call(*arguments: str, as_json: bool = True) -> Result:
        code = outcome(["doctor", *arguments, *(["--json"] if as_json else [])])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Result(code, out, err)

    return call


def work_on(store: Store, work: Work) -> Any:
    async def session() -> Any:
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(session())


def change(path: Path, clock: Hand, work: Work) -> Any:
    return work_on(SqliteStore(path, clock=clock), work)


def beat(name: str, number: int = 1, **values: Any) -> HeartbeatRequest:
    joining = HeartbeatRequest(
        name, number, 7200, 10, host="box", pid=7, version="0.1", joining=True, targets=("poll",)
    )
    return replace(joining, **values)


def writes_of(server: RedisServer) -> int:
    """Changes since it saved, which it never does."""
    [line] = [
        line for line in server.ask("INFO persistence").splitlines() if line.startswith(b"rdb_changes_since")
    ]
    return int(line.split(b":")[1])


def no_store_beside(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".py") in ([], ["__pycache__"])


# what it says in all


def test_json_has_the_shape_of_the_contract(doctor, database):
    done = doctor()
    found = json.loads(done.out)
    assert set(found) == {"ok", "store", "findings"}
    assert (found["ok"], found["store"], done.code) == (True, "sqlite:///app.db", 0)
    for finding in done.findings:
        assert set(finding) == {"section", "level", "what", "remedy"}
        assert (finding["remedy"] is None) == (finding["level"] == "ok")
    sections = list(dict.fromkeys(finding["section"] for finding in done.findings))
    assert sections == ["configuration", "store", "clocks", "zones", "cluster", "jobs"]


def test_for_people(doctor, database, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    done = doctor(as_json=False)
    lines = [line.rstrip() for line in done.out.splitlines()]
    assert "cluster" in lines
    assert "  ok  r3 leads, term 3" in lines
    assert "           → start a replica that declares nobody:knows, or `fencepost jobs rm strange`" in lines
    assert lines[-1] == "Nothing is wrong, 1 thing is doubtful."
    assert (done.code, done.err) == (0, "")


PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_documentation_shows_what_is_printed(doctor, database, monkeypatch):
    """But for what depends on the machine: versions, and how fast it is."""
    monkeypatch.setenv("COLUMNS", "140")
    [_, example] = PAGE.read_text(encoding="utf-8").split("```text\n$ fencepost doctor\n")

    def general(text: str) -> list[str]:
        text = re.sub("SQLite .*|tzdata .*|answers in [0-9.]+ ms", "…", text)
        return [line.rstrip() for line in text.splitlines()]

    assert general(doctor(as_json=False).out) == general(example.partition("```")[0])


def test_it_changes_nothing(doctor, database):
    before = database.read_bytes()
    doctor()
    assert database.read_bytes() == before


# the configuration


def test_where_settings_come_from(doctor, database, folder, monkeypatch):
    (folder / "fencepost.toml").write_text("slots = 3\ndrain_timeout = '40s'\n")
    monkeypatch.setenv("FENCEPOST_AUTH_TOKEN", "hunter2hunter2")
    monkeypatch.setenv("FENCEPOST_SLOT", "4")
    monkeypatch.setenv("FENCEPOST_HEARTBEAT", " ")
    done = doctor("--store", "sqlite:///app.db", "--namespace", "default")
    found = done.of("configuration")
    assert "settings file: fencepost.toml" in found
    assert "variables: FENCEPOST_AUTH_TOKEN, FENCEPOST_STORE" in found
    assert (
        "FENCEPOST_SLOT is not a variable of ours, and is ignored -> did you mean 'FENCEPOST_SLOTS'?" in found
    )
    assert "together exceed grace_period" in done.of("configuration", "warning")
    assert "hunter2" not in done.out + done.err
    assert done.code == 0


def test_what_code_decides_is_named(doctor, folder, monkeypatch):
    (folder / "deciding.py").write_text(
        "from fencepost import Scheduler\nscheduler = Scheduler('memory://', slots=3)\n"
    )
    monkeypatch.setenv("FENCEPOST_STORE", "sqlite:///other.db")
    done = doctor("deciding:scheduler")
    assert "decided in code or on the command line: store, slots" in done.of("configuration")
    assert "declares no jobs" in done.of("target", "warning")


def test_the_password_of_the_store_is_masked(doctor):
    done = doctor("--store", "redis://app:hunter2@127.0.0.1:1/0")
    assert "redis://app:***@127.0.0.1:1/0" in done.of("configuration")
    assert "hunter2" not in done.out + done.err
    assert done.code == UNAVAILABLE


def test_settings_that_do_not_fit_are_a_mistake_of_configuration(doctor, database, monkeypatch):
    monkeypatch.setenv("FENCEPOST_LEADER_TTL", "5s")
    done = doctor()
    assert done.code == CONFIGURATION
    assert "must be at least twice heartbeat" in done.err


# the store


def test_a_missing_database_stays_missing(doctor, folder):
    done = doctor("--store", "sqlite:///none.db")
    assert done.code == UNAVAILABLE
    assert "there is no none.db yet" in done.of("store", "problem")
    assert "settings file: none" in done.of("configuration")
    no_store_beside(folder)


def test_a_missing_folder_stays_missing(doctor, folder):
    done = doctor("--store", f"file://{folder}/none")
    assert (done.code, "there is no" in done.of("store", "problem")) == (UNAVAILABLE, True)
    no_store_beside(folder)


def test_a_namespace_that_is_not_there_is_not_made(doctor, database):
    before = database.read_bytes()
    done = doctor("--namespace", "other")
    assert done.code == CONFIGURATION
    told = "namespace 'other' holds nothing in sqlite:///app.db; namespaces there: default -> give the right one with"
    assert told in done.of("store", "problem")
    assert database.read_bytes() == before


def test_memory_is_not_shared(doctor):
    done = doctor("--store", "memory://")
    assert "every other one runs every job as well" in done.of("store", "warning")
    assert done.code == 0


def test_what_is_no_database_is_left_as_it_is(doctor, folder):
    (folder / "text.db").write_text("not a database, but a text of some length\n" * 50)
    done = doctor("--store", "sqlite:///text.db")
    assert done.code == CONFIGURATION
    assert "is not a database" in done.of("store", "problem")


@pytest.mark.parametrize("sound", [True, False])
def test_a_journal_that_a_replica_would_change_is_not_changed_here(doctor, database, monkeypatch, sound):
    with closing(sqlite3.connect(database)) as db:
        db.execute(f"pragma journal_mode = {'delete' if sound else 'wal'}")
    before = database.read_bytes()
    monkeypatch.setattr("fencepost.store.sqlite.preflight.wal_is_sound", lambda version: sound)
    done = doctor()
    told = "a replica that starts here changes it to WAL" if sound else "may corrupt it"
    assert told in done.of("store", "warning" if sound else "problem")
    assert done.code == (0 if sound else WRONG)
    assert not done.of("jobs")
    assert database.read_bytes() == before


def test_after_a_boot_nothing_is_settled_by_looking(doctor, database, monkeypatch):
    before = database.read_bytes()
    monkeypatch.setattr("fencepost.store.local.boot_id", lambda: "another")
    done = doctor()
    assert "this machine has started anew, and no replica since" in done.of("store", "problem")
    assert (done.code, done.of("cluster")) == (WRONG, "")
    assert database.read_bytes() == before


def test_a_folder(doctor, folder):
    work_on(FileStore(folder / "jobs"), lambda store: store.put_jobs([PutJob(Job("a", "a"))]))
    done = doctor("--store", f"file://{folder}/jobs")
    assert "a local disk" in done.of("store", "ok")
    assert "it answers in" in done.of("store")
    assert (
        done.of("cluster", "warning") == "no replica is up -> start a replica: `fencepost run app:scheduler`"
    )
    assert done.of("jobs") == "1 stored -> None"


def test_valkey(doctor, valkey_url: str, valkey_server: RedisServer) -> None:
    empty = doctor("--store", valkey_url)
    assert empty.code == CONFIGURATION
    assert "nothing of Fencepost is there yet" in empty.of("store", "problem")
    assert b":0\r\n" in valkey_server.ask("DBSIZE")

    async def stock(store: Store) -> None:
        await store.put_jobs([PutJob(Job("poll", "poll", every(hours=1)))])
        await store.heartbeat(beat("r1", campaign=Campaign(60)))

    work_on(RedisStore(valkey_url), stock)
    before = writes_of(valkey_server)
    done = doctor("--store", valkey_url)
    assert "a restart loses everything" in done.of("store", "warning")
    assert "r1 leads, term 1" in done.of("cluster")
    assert done.code == 0
    assert writes_of(valkey_server) == before > 0


def test_a_server_that_restarted_unseen(doctor) -> None:
    """What a restart means is put on record by the first who opens the store: not by who only looks."""
    with valkey(appendonly=True, appendfsync="always") as server:
        work_on(RedisStore(server.url), lambda store: store.put_jobs([PutJob(Job("a", "a"))]))
        server.kill()
        server.start()
        before = writes_of(server)
        done = doctor("--store", server.url)
        assert "each fire is claimed exactly once" in done.of("store", "ok")
        assert "no replica has been there since" in done.of("store", "problem")
        assert done.code == WRONG
        assert writes_of(server) == before


def test_postgresql(doctor, postgres_url: str) -> None:
    empty = doctor("--store", postgres_url)
    assert empty.code == CONFIGURATION
    assert "nothing of Fencepost is there yet" in empty.of("store", "problem")
    with psycopg.connect(postgres_url) as db:
        assert db.execute("select 1 from pg_namespace where nspname = 'fencepost'").fetchone() is None

    async def stock(store: Store) -> None:
        await store.put_jobs([PutJob(Job("poll", "poll", every(hours=1)))])
        await store.heartbeat(beat("r1", campaign=Campaign(60)))

    work_on(PostgresStore(postgres_url), stock)
    settings = "-c synchronous_commit=off -c default_transaction_read_only=on".replace(" ", "%20").replace(
        "=", "%3D"
    )
    joined = "&" if "?" in postgres_url else "?"
    done = doctor("--store", f"{postgres_url}{joined}options={settings}")
    assert "PostgreSQL 16" in done.of("store")
    assert "fsync off" in done.of("store", "problem")
    assert "synchronous_commit is off" in done.of("store", "warning")
    assert "r1" in done.of("cluster")
    assert done.of("jobs") == "1 stored -> None", done.out
    assert done.code == WRONG


# the clocks


@pytest.mark.parametrize(("seconds", "way"), [(90, "1 min 30 s ahead of"), (-90, "1 min 30 s behind")])
def test_a_clock_that_differs(doctor, database, monkeypatch, seconds, way):
    here = Hand(at("04:12") + timedelta(seconds=seconds))
    monkeypatch.setattr(COMMAND, "SystemClock", lambda: here)
    done = doctor()
    assert f"this host's clock is {way} the store's" in done.of("clocks", "warning")
    assert done.code == 0


def test_a_long_way_is_no_difference(doctor, database, monkeypatch):
    """On the way for 4 s, the store's clock read in the middle: that is as it should be."""

    class Slow(Hand):
        """Between two looks at it 4 s pass."""

        seconds = 0.0

        def steady(self) -> float:
            self.seconds += 4
            return self.seconds

    here = Slow(at("04:12") - timedelta(seconds=2))
    monkeypatch.setattr(COMMAND, "SystemClock", lambda: here)
    done = doctor()
    assert "agrees with the store's to within 2 s" in done.of("clocks", "ok")
    assert "later than the promised 100 ms" in done.of("store", "warning")


# the zones


def test_zones_that_are_known(doctor, database):
    assert "the zones of stored jobs are known here: Europe/Zurich, UTC" in doctor().of("zones", "ok")


def test_a_zone_that_is_not_known_here(doctor, database):
    with closing(sqlite3.connect(database)) as db:
        query = (
            "update fencepost_jobs set definition = replace(definition, 'Europe/Zurich', 'Europe/Zuerich')"
        )
        db.execute(query)
        db.commit()
    done = doctor()
    assert "'Europe/Zuerich' is not a known time zone" in done.of("unreadable", "problem")
    assert "tzdata" in done.of("zones", "ok")
    assert done.code == WRONG


# the cluster


def test_nobody_is_up(doctor, database, clock):
    change(database, clock, lambda store: store.leave("r3"))
    done = doctor()
    assert "no replica is up: nothing runs" in done.of("cluster", "problem")
    assert done.code == WRONG


def test_nobody_leads(doctor, database, clock):
    async def resign(store: Store) -> None:
        await store.heartbeat(beat("r4"))
        await store.leave("r3")

    change(database, clock, resign)
    done = doctor()
    assert "nobody leads" in done.of("cluster", "problem")
    assert done.code == WRONG


def test_an_overdue_leader(doctor, database, clock):
    clock.now = at("07:00")
    change(database, clock, lambda store: store.heartbeat(beat("r4")))
    done = doctor()
    assert "the leader r3 is overdue" in done.of("cluster", "problem")
    assert "replica r3 (host box, pid 41) is overdue" in done.of("cluster", "warning")
    assert done.code == WRONG


def test_replicas_of_different_versions(doctor, database, clock):
    change(database, clock, lambda store: store.heartbeat(beat("r4")))
    done = doctor()
    assert "different versions (0.1: r4; unknown: r3)" in done.of("cluster", "warning")
    assert done.code == 0


# the jobs


def test_no_jobs(doctor, folder):
    work_on(SqliteStore(folder / "app.db"), lambda store: store.roster())
    assert "none are stored" in doctor("--store", "sqlite:///app.db").of("jobs", "warning")


def test_an_orphaned_job(doctor, database):
    found = doctor().of("jobs", "warning")
    assert "strange is orphaned: no live replica knows its task since 2026-11-15 01:12:00Z" in found


def test_a_paused_job(doctor, database, clock):
    pause = ChangeJob("report", "pause", "moving", "ann@desk", at("06:00"))
    change(database, clock, lambda store: store.change_job(pause))
    found = doctor().of("jobs", "warning")
    assert "report is paused until 2026-11-15 06:00:00Z by ann@desk: moving" in found
    assert "`fencepost resume report`" in found


def test_what_is_due_and_decided_by_nobody(doctor, database, clock):
    clock.now = at("04:20")
    assert doctor().code == 0  # just due
    clock.now = at("04:31")
    done = doctor()
    found = done.of("jobs", "problem")
    assert "poll: 1 fire due since 2026-11-15 04:20:00Z, and decided by no replica" in found
    assert "poll: its calendar is planned up to 2026-11-15 04:20:00Z only" in found
    assert done.code == WRONG
    pause = ChangeJob("poll", "pause")
    change(database, clock, lambda store: store.change_job(pause))
    assert not doctor().of("jobs", "problem")  # held back on purpose


def test_a_run_whose_replica_is_not_on_record(doctor, database):
    assert not doctor().of("jobs", "problem")
    with closing(sqlite3.connect(database)) as db, db:
        assert db.execute("delete from fencepost_replicas where id = 'r3'").rowcount == 1
    done = doctor()
    found = done.of("jobs", "problem")
    assert f"{key('poll', '04:10')} runs on r3, which is not on record: nobody will end it" in found
    assert f"fencepost cancel '{key('poll', '04:10')}' --owner-is-dead" in found
    assert done.code == WRONG


def test_a_job_that_failed_three_times(doctor, database, clock):
    story = Story(database)
    story.store, story.term, story.claims = SqliteStore(database, clock=clock), 3, 100
    story.clock = clock

    async def fail(times: list[str]) -> None:
        await story.store.open()
        for moment in times:
            claimed = await story.work("r3", moment)
            await story.end("r3", claimed, key("report", moment), error="ValueError: no rows")
        await story.store.close()

    asyncio.run(fail(["05:00", "06:00"]))
    assert "the last 3 times" not in doctor().of("jobs")
    asyncio.run(fail(["07:00"]))
    done = doctor()
    assert "report failed the last 3 times: ValueError: no rows" in done.of("jobs", "problem")
    assert f"fencepost show '{key('report', '07:00')}'" in done.of("jobs", "problem")


def test_many_are_counted_not_listed(doctor, database, clock):
    puts = [PutJob(Job(f"old{number}", "gone")) for number in range(MOST_LISTED + 5)]
    change(database, clock, lambda store: store.put_jobs(puts))
    found = doctor().of("jobs", "warning").splitlines()
    assert len(found) == MOST_LISTED + 1
    assert found[-1] == "6 more like that -> `fencepost jobs` lists them"  # strange is one of them


# the target

APP = """
from datetime import timedelta
from fencepost import Scheduler, cron, every
scheduler = Scheduler(revision={revision})
@scheduler.job(cron("0 * * * *", "Europe/Zurich"), id="report", args={{"region": "ch"}})
def report(region): ...
@scheduler.job(every(minutes=5), id="poll", timeout=60)
def poll(): ...
@scheduler.job(every(minutes=5), id="fresh")
def fresh(): ...
"""


def test_what_a_target_would_change(doctor, database, folder, clock):
    (folder / "changed_app.py").write_text(APP.format(revision=None))
    change(database, clock, lambda store: store.put_jobs([PutJob(Job("mine", "poll", cron("0 0 1 1 *")))]))
    before = database.read_bytes()
    done = doctor("changed_app:scheduler")
    found = done.of("target")
    assert "changed_app:scheduler can be imported and declares 3 jobs" in found
    assert "not stored yet: fresh; they are when a replica with this code starts" in found
    assert (
        "poll is stored with another trigger, timeout: a replica that starts with this code changes it"
        in found
    )
    assert "report is stored" not in found
    assert "added for its tasks at run time: mine" in found
    assert "stored, and changed_app:scheduler does not know the task: batch, hand, strange" in found
    assert done.code == 0
    assert database.read_bytes() == before


def test_an_older_revision(doctor, database, folder, clock):
    (folder / "older_app.py").write_text(APP.format(revision=5))
    change(database, clock, lambda store: store.put_jobs([PutJob(Job("poll", "poll"), revision=7)]))
    found = doctor("older_app:scheduler").of("target", "warning")
    assert "of revision 7: this code, of revision 5, does not change it" in found


def test_a_definition_that_would_not_come_back(doctor, database, folder, clock):
    (folder / "flipped_app.py").write_text(APP.format(revision=None))
    declared = Job("poll", "poll", every(minutes=5), timeout=timedelta(minutes=1))

    async def replaced(store: Store) -> None:
        await store.put_jobs([PutJob(declared, by="r1")])
        await store.put_jobs([PutJob(replace(declared, timeout=None), by="r3")])

    change(database, clock, replaced)
    assert "this older definition is refused" in doctor("flipped_app:scheduler").of("target", "warning")


def test_a_target_that_is_stored_as_declared(doctor, database, folder):
    (folder / "same_app.py").write_text(
        "from fencepost import Scheduler, every\n"
        "scheduler = Scheduler()\n"
        "@scheduler.job(every(minutes=10))\n"
        "def poll(): ...\n"
    )
    assert "all of them are stored as declared" in doctor("same_app:scheduler").of("target", "ok")


def test_a_target_that_cannot_be_imported(doctor, database, folder):
    (folder / "broken_app.py").write_text("raise RuntimeError('no')\n")
    done = doctor("broken_app:scheduler")
    assert (done.code, "cannot be imported: RuntimeError: no" in done.err) == (CONFIGURATION, True)
    assert doctor("no_such_module:scheduler").code == USAGE
