"""Jobs as texts. What was written or read is remembered, so what is remembered must be what was written."""

from __future__ import annotations

from datetime import UTC, datetime

from fencepost import every
from fencepost.model import Job, JobRecord
from fencepost.store.texts import job_record, texts_of

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def record(**values: object) -> JobRecord:
    job = Job("a", "a", every(minutes=1))
    return JobRecord(job, job.fingerprint, NOON, NOON, **values)  # type: ignore[arg-type]


def test_what_is_hot_is_not_part_of_them() -> None:
    assert texts_of(record(token=7)) == texts_of(record(token=8))
    assert job_record(*texts_of(record(token=7))) == record()


def test_who_writes_a_text_need_not_read_it() -> None:
    texts = texts_of(record(version=41))
    assert job_record(*texts) is job_record(*texts)


def test_a_value_that_changes_in_its_owners_hands_does_not_change_what_was_written() -> None:
    handed_in = {"rows": [1, 2]}
    texts = texts_of(record(kept=handed_in))
    handed_in["rows"].append(3)
    assert job_record(*texts).kept == {"rows": [1, 2]}
