"""`fencepost import celery`: the corpus against Celery itself, as the app and as a file."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery.schedules import crontab, schedule

from fencepost.cli.migrate import celery
from fencepost.cli.migrate.compare import compare
from fencepost.cli.migrate.values import Imported, Send
from fencepost.errors import ConfigurationError
from tests.importing.oracles import first

CORPUS = Path(__file__).parent / "corpus" / "beat.py"
ZURICH = ZoneInfo("Europe/Zurich")
COUNT = 50
SPRING, AUTUMN = datetime(2026, 3, 20, 10, tzinfo=UTC), datetime(2026, 10, 20, 10, tzinfo=UTC)


@pytest.fixture(scope="module")
def beat() -> ModuleType:
    spec = importlib.util.spec_from_file_location("beat_corpus", CORPUS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(beat: ModuleType) -> Imported:
    return celery.read_app(beat.app, "beat:app", None)


def sent_by_beat(entry: Any, after: datetime, app: Any) -> Iterator[datetime]:
    """beat's loop with a played clock: it sleeps as long as the schedule says, and asks again."""
    now = last = after
    if isinstance(entry, int | float | timedelta):
        entry = schedule(entry, app=app)
    entry.app = app
    entry.nowfun = lambda: now.astimezone(ZURICH)
    while now.year < 2150:
        due, wait = entry.is_due(last.astimezone(ZURICH))
        if due and now > after:
            yield now
            last = now
        else:
            now += timedelta(seconds=max(round(wait), 1))


@pytest.mark.parametrize("after", [SPRING, AUTUMN], ids=("spring", "autumn"))
def test_the_next_50_fires_are_beats_or_the_difference_is_reported(
    beat: ModuleType, found: Imported, after: datetime
) -> None:
    assert len(found.jobs) >= 40
    given = beat.app.conf.beat_schedule
    for job in found.jobs:
        entry = given[job.origin.removeprefix("entry ").strip("'")]["schedule"]
        copy = (
            crontab(**{f: getattr(entry, f"_orig_{f}") for f in celery.FIELDS})
            if isinstance(entry, crontab)
            else entry
        )
        compared = compare(job, after, COUNT)
        expected = first(sent_by_beat(copy, after, beat.app), len(compared.old))
        assert list(compared.old) == expected, f"{job.id}: {job.schedule}"
        assert not compared.difference or job.id == "timedelta-mixed", job.id
        if list(compared.new) != expected:
            assert compared.at_changes or compared.difference, job.id


def test_a_gap_and_a_fold_are_reported(found: Imported) -> None:
    [job] = [job for job in found.jobs if job.id == "nightly"]
    compared = compare(job, SPRING, COUNT)
    assert compared.at_changes.only_old == (datetime(2026, 3, 29, 1, 30, tzinfo=UTC),)
    assert compared.at_changes.only_new == (datetime(2026, 3, 29, 1, 0, tzinfo=UTC),)
    [job] = [job for job in found.jobs if job.id == "every-minute"]
    assert len(compare(job, AUTUMN, COUNT).at_changes.only_new) == 60, (
        "beat sends nothing in the repeated hour"
    )


def test_what_is_left_out_has_a_reason_and_a_remedy(found: Imported) -> None:
    left_out = {entry.origin: entry for entry in found.left_out}
    assert set(left_out) == {"entry 'friday-the-13th'", "entry 'no-task'"}
    assert all(entry.why and entry.remedy for entry in left_out.values())


def test_what_is_sent(found: Imported) -> None:
    [job] = [job for job in found.jobs if job.id == "everything"]
    assert job.body == Send(
        "shop.tasks.send",
        [16, "it's", ["a", None, True]],
        {"region": "ch", "deep": {"n": 1.5}},
        {"queue": "slow", "priority": 5, "expires": 600.0},
        "beat:app",
    )


def test_the_file_says_the_same_without_being_run(found: Imported) -> None:
    """One entry of the corpus is computed; of the file it is left out, with the remedy to name the app."""
    of_file = celery.read_source(CORPUS.read_text(encoding="utf-8"), None, "beat:app")
    computed = {entry.origin: entry for entry in of_file.left_out}["entry 'mondays-by-name'"]
    assert "module:attribute" in computed.remedy
    jobs = [(job.id, job.trigger, job.body, job.tz) for job in found.jobs if job.id != "mondays-by-name"]
    assert [(job.id, job.trigger, job.body, job.tz) for job in of_file.jobs] == jobs


def test_a_file_is_not_executed(tmp_path: Path) -> None:
    text = f"open({str(tmp_path / 'ran')!r}, 'w')\nbeat_schedule = {{'a': {{'task': 't', 'schedule': 5}}}}\n"
    assert [job.id for job in celery.read_source(text, None, None).jobs] == ["a"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "ids", "left"),
    [
        ("CELERY_BEAT_SCHEDULE = {'a': {'task': 't', 'schedule': 5}}", ["a"], 0),
        (
            "app.conf.update(beat_schedule={'a': {'task': 't', 'schedule': crontab()}}, timezone='UTC')",
            ["a"],
            0,
        ),
        ("beat_schedule: dict = {'a': {'task': 't', 'schedule': crontab(hour='25')}}", [], 1),
        ("beat_schedule = {'a': {'task': 't', 'schedule': MINE}}", [], 1),
        ("beat_schedule = {'a': {'task': 't', 'schedule': mine(1)}}", [], 1),
        ("beat_schedule = {'a': {'task': 't', 'schedule': -5}}", [], 1),
        ("beat_schedule = {'a': {'task': 't', 'schedule': 5, 'args': ARGS}}", [], 1),
        ("beat_schedule = {'a': {'task': 't', 'schedule': 5, 'args': (object(),)}}", [], 1),
        ("beat_schedule = {'a': {'task': 't', 'schedule': solar('sunset', -37.8, 144.9)}}", [], 1),
        ("beat_schedule = {'a': {'task': 't', 'schedule': crontab(minute=[0, c0])}}", [], 1),
        ("beat_schedule = {'a': {'task': 't', 'schedule': schedule(run_ev, ry=5)}}", [], 1),
        ("timezone = zone()\nbeat_schedule = {-'a': {'task': 't', 'schedule': 5}}", ["a"], 0),
        ("beat_schedule = {'a': 5, 5: 6}", [], 2),
        ("sender.add_periodic_task(10.0, test.s('hello'))", [], 1),
    ],
)
def test_files(text: str, ids: list[str], left: int) -> None:
    found = celery.read_source(text, None, None)
    assert [job.id for job in found.jobs] == ids
    assert len(found.left_out) == left
    assert all(entry.why and entry.remedy for entry in found.left_out)


@pytest.mark.parametrize("text", ["beat_schedule = make()", "beat_schedule = {", "x = " + "(" * 5000, "\0"])
def test_files_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"; "):
        celery.read_source(text, None, None)
