"""`fencepost import crontab`: the corpus against a played cron daemon, and what lines mean."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fencepost.migrate.compare import compare
from fencepost.migrate.crontab import MACROS, name_of, read_crontab
from fencepost.migrate.values import Carried, Command
from tests.importing.oracles import cron_daemon, first

CORPUS = (Path(__file__).parent / "corpus" / "crontab").read_text(encoding="utf-8")
COUNT = 50
MOMENTS = (datetime(2026, 3, 20, 10, tzinfo=UTC), datetime(2026, 10, 20, 10, tzinfo=UTC))


def test_the_corpus_is_what_it_says() -> None:
    found = read_crontab(CORPUS, "UTC")
    assert len(found.jobs) >= 200
    assert len(found.left_out) >= 15
    assert len({job.id for job in found.jobs}) == len(found.jobs)
    assert all(entry.why and entry.remedy for entry in found.left_out)


@pytest.mark.parametrize("after", MOMENTS, ids=("spring", "autumn"))
def test_the_next_50_fires_are_those_of_a_cron_daemon(after: datetime) -> None:
    """Both readings: the import's own, and the new trigger; or the difference is in the report."""
    for job in read_crontab(CORPUS, "UTC").jobs:
        expected = first(cron_daemon(MACROS.get(job.schedule, job.schedule), job.tz, after), COUNT)
        found = compare(job, after, COUNT)
        assert list(found.old) == expected, f"{job.origin}: the reading of {job.schedule} in {job.tz}"
        if list(found.new) != expected:
            assert found.difference or found.at_changes, f"{job.origin}: {job.schedule} in {job.tz}"


def test_cron_and_ours_agree_on_all_of_it() -> None:
    """No line of the corpus needs a report today. If one does one day, this test says which."""
    for job in read_crontab(CORPUS, "UTC").jobs:
        found = compare(job, MOMENTS[0], COUNT)
        assert not found.difference, (job.origin, job.schedule, job.tz, found.difference)
        assert not found.at_changes, (job.origin, job.schedule, job.tz, found.at_changes)
