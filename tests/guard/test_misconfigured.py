"""A store that cannot be used when the application starts: one clear line, and it is used when it is mended."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.guard.kit import eventually, guarded
from tests.servers import postgres, valkey

OFTEN = {"trigger": "interval", "seconds": 1, "misfire_grace_time": 30, "id": "tick"}
SECRET = "s3cret-word"
NOBODY = 65534


@contextlib.contextmanager
def missing_database():
    with postgres() as server:
        yield server.url_of("later"), lambda: server.execute("CREATE DATABASE later")


@contextlib.contextmanager
def missing_role():
    with postgres() as server:
        url = server.url.replace("postgres@", f"later:{SECRET}@")
        yield url, lambda: server.execute("CREATE ROLE later LOGIN SUPERUSER")


@contextlib.contextmanager
def role_that_may_not_create():
    with postgres() as server:
        server.execute("CREATE ROLE poor LOGIN")
        url = server.url.replace("postgres@", "poor@")
        yield url, lambda: server.execute("GRANT CREATE ON DATABASE postgres TO poor")


@contextlib.contextmanager
def wrong_password_of_postgres():
    with postgres() as server:
        server.execute("CREATE ROLE careful LOGIN SUPERUSER PASSWORD 'another'")
        rules = server.data / "pg_hba.conf"
        rules.write_text("host all careful 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        server.execute("SELECT pg_reload_conf()")
        url = server.url.replace("postgres@", f"careful:{SECRET}@")
        yield url, lambda: server.execute(f"ALTER ROLE careful PASSWORD '{SECRET}'")


@contextlib.contextmanager
def read_only_database():
    with postgres() as server:
        server.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
        begin = "BEGIN READ WRITE; ALTER DATABASE postgres RESET default_transaction_read_only; COMMIT"
        yield server.url, lambda: server.execute(begin)


@contextlib.contextmanager
def wrong_password_of_redis():
    with valkey(requirepass="another") as server:
        url = server.url.replace("another", SECRET)
        yield url, lambda: server.ask(f"CONFIG SET requirepass {SECRET}")


@contextlib.contextmanager
def read_only_replica():
    with valkey() as primary, valkey() as server:
        server.ask(f"REPLICAOF {primary.host} {primary.port}")
        eventually(lambda: b"master_link_status:up" in server.ask("INFO replication"), 60)
        yield server.url, lambda: server.ask("REPLICAOF NO ONE")


@contextlib.contextmanager
def missing_folder():
    with tempfile.TemporaryDirectory() as name:
        yield f"sqlite:///{name}/missing/shared.db", Path(name, "missing").mkdir


@pytest.mark.parametrize(
    ("scene", "says"),
    [
        (missing_folder, "there is no folder"),
        (wrong_password_of_redis, "check the user, the password"),
        pytest.param(read_only_replica, "is a replica of", marks=pytest.mark.slow),
        pytest.param(missing_database, 'database "later" does not exist', marks=pytest.mark.slow),
        pytest.param(missing_role, 'role "later" does not exist', marks=pytest.mark.slow),
        pytest.param(role_that_may_not_create, "permission denied", marks=pytest.mark.slow),
        pytest.param(wrong_password_of_postgres, "password authentication failed", marks=pytest.mark.slow),
        pytest.param(read_only_database, "default_transaction_read_only", marks=pytest.mark.slow),
    ],
)
def test_it_is_said_once_and_the_store_is_used_when_it_is_mended(scene, says, caplog):
    caplog.set_level(logging.INFO, "fencepost")
    runs = []
    with scene() as (url, mend), guarded(url, (lambda: runs.append(1), OFTEN)):
        eventually(lambda: says in caplog.text, 60)
        time.sleep(2.5)  # it is tried again meanwhile
        bad = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert len(bad) == 1, [each.getMessage() for each in bad]
        assert bad[0].exc_info is None
        assert not runs
        mend()
        eventually(lambda: runs, 60)
    assert caplog.text.count("the store answers now") + caplog.text.count("store.recovered") == 1
    assert SECRET not in caplog.text


def test_an_application_that_ends_before_it_is_mended_leaves_in_silence(caplog):
    with wrong_password_of_redis() as (url, _), guarded(url, (print, OFTEN)):
        eventually(lambda: "no guarded job runs" in caplog.text, 60)
    bad = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(bad) == 1, bad


SERVICE = """
import os, sys, time
from apscheduler.schedulers.background import BackgroundScheduler
from fencepost.apscheduler import guard
from fencepost.store.sqlite import store as _
import logging
logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
url, user = sys.argv[1:]
scheduler = BackgroundScheduler(timezone="UTC")
guard(scheduler, url, heartbeat=0.2, leader_ttl=1, run_ttl=1)
scheduler.add_job(os.write, "interval", args=[1, b"it runs\\n"], seconds=1, id="tick")
if os.geteuid() == 0:
    os.seteuid(int(user))
scheduler.start()
sys.stdin.readline()
scheduler.shutdown()
"""


@pytest.mark.parametrize("closed", ["folder", pytest.param("database", marks=pytest.mark.slow)])
def test_a_place_that_may_not_be_written(closed):
    with tempfile.TemporaryDirectory() as name:
        folder, database = Path(name), Path(name, "shared.db")
        folder.chmod(0o755 if closed == "folder" else 0o777)
        if closed == "database":
            database.touch(0o444)
            database.chmod(0o444)
        if os.geteuid() != 0:
            folder.chmod(0o555 if closed == "folder" else 0o777)
        command = [sys.executable, "-u", "-c", SERVICE, f"sqlite:///{database}", str(NOBODY)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                first = process.stdout.readline()
                assert "no guarded job runs" in first
                assert "may not be written by user" in first
                time.sleep(2.5)
                folder.chmod(0o777)
                if closed == "database":
                    database.chmod(0o666)
                assert "the store answers now" in process.stdout.readline()
                # On a busy machine it comes after a warning that something was held up.
                assert "it runs\n" in process.stdout
                process.stdin.write("\n")
            finally:
                process.stdin.close()
                process.wait(120)
