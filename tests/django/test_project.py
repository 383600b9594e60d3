"""A project from its first command on: who takes part, what is found, what is said of mistakes."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.django.site import EXAMPLE, JOBS, Site

pytestmark = pytest.mark.cluster

MORE_JOBS = """

@every(hours=1, executor="process")
def elsewhere(fire: Fire) -> None:
    note(fire)
"""

BROKEN = """
from fencepost.django import every


@every(hours=1)
def half_declared() -> None: ...


raise RuntimeError("the rest is missing")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Migrated, with an app whose jobs cannot be imported; nothing has run."""
    site = Site(tmp_path_factory.mktemp("project"), jobs=JOBS + MORE_JOBS)
    site.write("broken/__init__.py", "")
    site.write("broken/jobs.py", BROKEN)
    site.append("shop_site/settings.py", '\nINSTALLED_APPS.append("broken")\n')
    site.manage("migrate", "-v0")
    return site


LOOK = """
import io, os, threading
from contextlib import redirect_stderr, redirect_stdout
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from fencepost import Fire
from fencepost.django import checks, every, project, scheduler
from fencepost.django.bodies import body_of
from shop.models import Run
from shop.tasks import send_receipts
from django_tasks_db.models import DBTaskResult

answer["jobs"] = sorted(scheduler.jobs)
@scheduler.job(every(hours=2, overlap="queue"), id="by_hand")
def declared(): ...

answer["declared"] = [scheduler.jobs["by_hand"].overlap.kind, scheduler.declared.id_of(declared)]
scheduler.declared.withdraw(["by_hand"])
answer["checked"] = [str(found) for found in checks.check_project()]

def said_of(value, **env):
    settings.FENCEPOST, project._made = value, None
    os.environ.update(env)
    return " ".join(found.msg for found in checks.check_project())

answer["typo"] = said_of({"STOER": "default"})
answer["alias"] = said_of({"STORE": "defualt"})
answer["memory"] = said_of({"STORE": "memory://"})
answer["two"] = said_of({"STORE": "default"}, FENCEPOST_STORE="sqlite:///other.db")
project._made = scheduler

def body():
    Run.objects.count()
    return connection.connection is not None

def in_a_thread():
    answer["connected inside"] = body_of(body)()
    answer["connected after"] = connection.connection is not None

thread = threading.Thread(target=in_a_thread)
thread.start()
thread.join()

fire = Fire.fake(job_id="send_receipts")
enqueue = body_of(send_receipts)
results = [enqueue(fire=fire)["result"], enqueue(fire=fire)["result"]]
answer["enqueued"] = DBTaskResult.objects.count()
answer["same result"] = len(set(results)) == 1
answer["key"] = DBTaskResult.objects.get().args_kwargs["kwargs"] == {"fire_key": fire.effect_key}
"""


def test_commands_of_django_take_no_part(site: Site) -> None:
    """`migrate` has run, in the fixture."""
    site.write(
        "shop/tests.py", "from django.test import TestCase\nclass T(TestCase):\n    def test(self): ...\n"
    )
    site.manage("test")
    found = site.shell(LOOK)
    with closing(sqlite3.connect(site.env["SQLITE_FILE"])) as database:
        tables = [row[0] for row in database.execute("select name from sqlite_master where type = 'table'")]
    assert not [table for table in tables if table.startswith("fencepost_")], (
        "no replica, no job, not even a store"
    )
    said = site.manage("fencepost", "status", check=False)
    assert said.returncode == 78
    assert "nothing of Fencepost is there yet" in said.stderr
    assert "python manage.py fencepost run" in said.stderr
    judge(found)


def judge(found: dict[str, Any]) -> None:
    """What the shell has seen."""
    assert found["jobs"] == ["chime", "elsewhere", "tick", "tock"], (
        "of the module that failed none, not even half"
    )
    assert found["declared"] == ["queue", "by_hand"]
    [broken] = found["checked"]
    assert "fencepost.W005" in broken
    assert "broken.jobs cannot be imported" in broken
    assert "RuntimeError: the rest is missing (jobs.py, line 9)" in broken
    assert "FENCEPOST has no setting 'STOER'; did you mean 'STORE'?" in found["typo"]
    assert "did you mean 'default'?" in found["alias"]
    assert "every process runs every job" in found["memory"]
    assert "two stores are named" in found["two"]
    assert found["connected inside"], "a body has its connection,"
    assert not found["connected after"], "and leaves none behind"
    assert (found["enqueued"], found["same result"], found["key"]) == (1, True, True), "enqueued once"


COMMANDS = """
import io
from contextlib import redirect_stdout
from django.core.management import CommandError, call_command

def said(*words):
    with redirect_stdout(io.StringIO()) as out:
        try:
            call_command("fencepost", *words)
        except CommandError as error:
            return out.getvalue() or error.returncode
    return out.getvalue()

answer["status"] = json.loads(said("status", "--json"))
answer["audit"] = json.loads(said("audit", "--json"))
answer["why"] = said("why", "tick")
answer["doctor"] = said("doctor")
answer["unknown"] = said("show", "tack")
"""


@pytest.mark.slow
def test_the_commands_know_the_project(site: Site) -> None:
    site.manage("fencepost", "run", "--seconds", "3")
    assert {run["job"] for run in site.runs()} == {"chime", "tick", "tock"}
    found = site.shell(COMMANDS)
    assert {job["id"] for job in found["status"]["jobs"]} == {"chime", "elsewhere", "tick", "tock"}
    assert found["audit"]["doubled"] == []
    assert found["why"].startswith("tick, the fire of")
    assert "declares 4 jobs" in found["doctor"]
    assert found["unknown"] == 64


@pytest.mark.slow
def test_a_process_of_a_jobs_own_has_django_set_up(site: Site) -> None:
    site.manage("fencepost", "run", "--seconds", "1")
    site.manage("fencepost", "trigger", "elsewhere", "--here")
    assert site.runs()[-1]["job"] == "elsewhere"


@pytest.mark.slow
def test_the_example_tests_its_jobs_in_virtual_time(tmp_path: Path) -> None:
    site = Site(tmp_path)
    shutil.copy(EXAMPLE / "shop" / "jobs.py", site.folder / "shop")
    assert "Ran 5 tests" in site.manage("test").stderr
