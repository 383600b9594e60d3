"""Tasks on the database backend of django-tasks: fires enqueue them, its own workers run them, a replica is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from tests.django.site import Site

SECONDS = int(os.environ.get("FENCEPOST_TEST_SECONDS", "4"))

JOBS = """
from fencepost.django import every
from shop.tasks import send_receipts

every(seconds=1)(send_receipts)
every(seconds=1, id="second_round")(send_receipts)
"""

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


def enqueued(url: str) -> Counter[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("select args_kwargs from django_tasks_database_dbtaskresult").fetchall()
    return Counter(row[0]["kwargs"]["fire_key"] for row in rows)


def test_every_fire_is_one_task(tmp_path: Path, postgres_url: str) -> None:
    site = Site(tmp_path, postgres_url, JOBS)
    site.manage("migrate", "-v0")
    run = [sys.executable, "manage.py", "fencepost", "run"]
    worker = [sys.executable, "manage.py", "db_worker", "--interval", "0.2"]
    with (
        site.running(*worker),
        site.running(*worker),
        site.running(*run) as other,
        site.running(*run) as victim,
    ):
        site.wait_for(lambda: len(site.replicas()) == 2, f"two replicas: {victim.said()} {other.said()}", 60)
        site.wait_for(lambda: len(enqueued(postgres_url)) >= SECONDS, "half of the tasks", SECONDS + 60)
        os.kill(victim.popen.pid, signal.SIGKILL)
        seen = len(enqueued(postgres_url))
        site.wait_for(lambda: len(enqueued(postgres_url)) >= seen + SECONDS, "the other half", SECONDS + 60)
        other.stop()
        tasks = enqueued(postgres_url)
        site.wait_for(lambda: len(site.runs()) >= len(tasks), "all tasks have run", 60)
    runs = Counter(run["fire_key"] for run in site.runs())
    audit = site.json("audit", check=False)
    fires = {fire["key"]: fire["state"] for fire in site.json("fires", "--limit", "10000")}
    succeeded = {key for key, state in fires.items() if state == "succeeded"}
    print({"tasks": len(tasks), "runs": sum(runs.values()), "succeeded": len(succeeded), "audit": audit})
    assert max(tasks.values()) == 1, "no fire has enqueued two"
    assert max(runs.values()) == 1, "no task has run twice"
    assert succeeded <= set(tasks) == set(runs)
    assert not audit["unaccounted"]
    assert not audit["doubled"]
