"""Tags, owner and description: read alike from code, a file and a stored row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost import Scheduler, every, limit
from fencepost.errors import ConfigurationError, UsageError
from fencepost.model import Job, job_from_json, job_to_json
from fencepost.model.job_fields import FIELDS
from fencepost.model.selection import selects
from fencepost.scheduler.jobfile import scheduler_from

LABELLED = Job("report", "report", tags=("nightly", "billing"), owner="Ann", description="Sums up the day.")


def test_they_are_kept_with_the_job() -> None:
    assert LABELLED.tags == ("billing", "nightly")
    assert job_from_json(job_to_json(LABELLED)) == LABELLED
    assert LABELLED.fingerprint != Job("report", "report").fingerprint


def test_a_job_without_them_is_stored_as_by_earlier_releases() -> None:
    stored = job_to_json(Job("report", "report"))
    assert FIELDS.keys().isdisjoint(stored)
    assert job_from_json(stored) == Job("report", "report")


def test_code_and_file_say_the_same(tmp_path: Path) -> None:
    scheduler = Scheduler("memory://")

    @scheduler.job(
        every(hours=1),
        tags=["b", "a", "b"],
        owner=" Ann ",
        description="Hourly.",
        limits=[limit("warehouse", 2)],
        jitter="30s",
    )
    def hello() -> None: ...

    (tmp_path / "fencepost.toml").write_text(
        'store = "memory://"\n[jobs.hello]\ncommand = ["true"]\nevery = "1h"\n'
        'tags = ["a", "b"]\nowner = "Ann"\ndescription = "Hourly."\n'
        'limits = [{name = "warehouse", size = 2}]\njitter = "30s"\n'
    )
    written = scheduler_from(tmp_path / "fencepost.toml").jobs["hello"]
    [declared] = scheduler.jobs.values()
    for name in ("tags", "owner", "description"):
        assert getattr(written, name) == getattr(declared, name) != FIELDS[name].default, name


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tags": [1]}, "the tag 1 is not usable"),
        ({"tags": ["with space"]}, "the tag 'with space' is not usable"),
        ({"tags": 7}, "give a list of names"),
        ({"tags": [f"t{n}" for n in range(21)]}, "at most 20 tags, not 21"),
        ({"owner": 7}, "owner=7: give a text"),
        ({"description": "x" * 2001}, "has 2001 characters, the limit is 2000"),
        ({"priority": 101}, "priority=101 does not work; give a whole number from -100 to 100"),
        ({"priority": "high"}, "priority='high' does not work"),
        ({"priority": True}, "priority=True does not work"),
        ({"tag": "x"}, "did you mean 'tags'?"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    scheduler = Scheduler("memory://")
    with pytest.raises(ConfigurationError, match=says.replace("?", r"\?")):
        scheduler.job(every(hours=1), **given)(lambda: None)


def test_jobs_are_chosen_by_a_text() -> None:
    chosen = ("tag:nightly", "owner:ann", "rep*", "id:report", "*")
    assert all(selects(text, LABELLED) for text in chosen)
    others = ("tag:night", "tag:night*", "owner:bob", "REPORT", "re")
    assert not any(selects(text, LABELLED) for text in others)
    assert selects("import:eu", Job("import:eu", "x"))
    urgent = Job("urgent", "x", priority=5)
    assert all(selects(f"priority:{text}", urgent) for text in ("5", "1..", "..9", "5..5"))
    assert not any(selects(f"priority:{text}", urgent) for text in ("4", "6..", "..-1", "-9..4"))
    for text in ("..", "high", "5..x", ""):
        with pytest.raises(UsageError, match="priority"):
            selects(f"priority:{text}", urgent)
    with pytest.raises(UsageError, match="did you mean 'tag'"):
        selects("tags:nightly", LABELLED)
    with pytest.raises(UsageError, match="write tag:NAME"):
        selects("tag:", LABELLED)
