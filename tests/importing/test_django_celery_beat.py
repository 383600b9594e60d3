"""`fencepost import django-celery-beat`: a dump of the tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fencepost.cli.migrate.compare import compare
from fencepost.cli.migrate.django_celery_beat import read_dump
from fencepost.cli.migrate.values import Send
from fencepost.errors import ConfigurationError

DUMP = (Path(__file__).parent / "corpus" / "beat_tables.json").read_text(encoding="utf-8")
AFTER = datetime(2026, 3, 20, 10, tzinfo=UTC)


def test_jobs() -> None:
    found = read_dump(DUMP, None, "shop.celery:app")
    jobs = {job.id: job for job in found.jobs}
    assert {id: job.trigger.to_json() for id, job in jobs.items()} == {
        "nightly-report": {"type": "cron", "expression": "30 2 * * *", "tz": "Europe/Zurich"},
        "first-mondays": {"type": "cron", "expression": "0 9 * * 1#1", "tz": "UTC"},
        "poll": {
            "type": "every",
            "seconds": 600,
            "anchor": "2025-12-31T23:55:00.000000Z",
            "end": "2027-01-01T00:00:00.000000Z",
        },
        "christmas": {"type": "at", "moments": ["2026-12-24T17:00:00.000000Z"]},
    }
    options = {"queue": "slow", "priority": 3, "expires": 600, "headers": {"a": "b"}}
    assert jobs["nightly-report"].body == Send(
        "shop.tasks.report", [1, "it's"], {"region": "ch"}, options, "shop.celery:app"
    )
    for job in found.jobs:
        assert not compare(job, AFTER, 50).difference, job.id


def test_what_is_left_out() -> None:
    left_out = {entry.origin: entry for entry in read_dump(DUMP, None, None).left_out}
    assert set(left_out) == {
        f"entry {name!r}" for name in ("sunset", "disabled", "once", "bad args", "dangling")
    }
    assert all(entry.why and entry.remedy for entry in left_out.values())


@pytest.mark.parametrize("key", [{}, [], None, True])
def test_rows_with_odd_keys_are_left_out_one_by_one(key: object) -> None:
    rows = json.loads(DUMP)
    rows[0]["pk"] = rows[6]["fields"]["crontab"] = key
    found = read_dump(json.dumps(rows), None, None)
    assert len(found.jobs) + len(found.left_out) == 9


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1, 2]", "[" * 100_000, '[{"model": 1, "fields": []}]'])
def test_a_file_that_is_no_dump_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="dumpdata"):
        read_dump(text, None, None)
