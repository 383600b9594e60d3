from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import ConfigurationError
from fencepost.model import (
    MAX_ATTEMPTS_KEPT,
    FireRecord,
    Gap,
    Job,
    JobRecord,
    Overlap,
    Segment,
    State,
    checked_id,
    fire_key,
    job_from_json,
    job_to_json,
    manual_key,
)
from fencepost.model.retry import Retry
from fencepost.model.triggers import at, cron, every

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)

FULL = Job(
    "report:ch",
    "app.report",
    cron("30 2 * * *", tz="Europe/Zurich"),
    args={"region": "ch", "depth": 3},
    overlap=Overlap("queue", 2),
    misfire="all",
    misfire_after=timedelta(minutes=5),
    retry=Retry(attempts=5, first=1, cap=60, on=("ValueError",)),
    timeout=timedelta(seconds=120),
    after_crash="rerun",
    crash_attempts=4,
    execute_on="leader",
)


class TestKeys:
    def test_the_format_is_frozen(self) -> None:
        assert fire_key("report", NOON) == "report@2026-11-15T12:00:00.000000Z"

    def test_microseconds_count(self) -> None:
        assert fire_key("x", NOON + timedelta(microseconds=70)) == "x@2026-11-15T12:00:00.000070Z"

    def test_the_zone_it_is_given_in_does_not_matter(self) -> None:
        local = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
        assert fire_key("x", local) == fire_key("x", NOON)

    @given(st.lists(st.datetimes(datetime(1900, 1, 1), datetime(8999, 1, 1)), min_size=2))
    def test_they_sort_like_their_moments(self, naive: list[datetime]) -> None:
        moments = [moment.replace(tzinfo=UTC) for moment in naive]
        keys = {moment: fire_key("job", moment) for moment in moments}
        assert sorted(moments, key=keys.__getitem__) == sorted(moments)

    def test_manual_fires_have_a_key_space_of_their_own(self) -> None:
        assert manual_key("report", "order-17") == "report!order-17"

    @pytest.mark.parametrize("name", ["", "a@b", "a!b", "a b", "x" * 201])
    def test_a_manual_name_is_checked(self, name: str) -> None:
        with pytest.raises(ConfigurationError, match="idempotency key"):
            manual_key("report", name)


class TestIds:
    @pytest.mark.parametrize("id", ["a", "A.b:c-d_9", "x" * 200, "Class.method", "0"])
    def test_usable(self, id: str) -> None:
        assert checked_id(id, "job id") == id
        assert Job(id, "work").id == id

    @pytest.mark.parametrize(
        "id", ["", "x" * 201, "a b", "a@b", "a!b", "a/b", "ä", "a\n", "\na", None, 3, b"a"]
    )
    def test_not_usable(self, id: Any) -> None:
        with pytest.raises(ConfigurationError, match="job id .* is not usable; use 1 to 200 letters"):
            Job(id, "work")


class TestOverlap:
    @pytest.mark.parametrize(
        ("text", "kind", "limit", "at_once"),
        [
            ("skip", "skip", 1, 1),
            ("queue", "queue", 1, 1),
            ("queue(5)", "queue", 5, 1),
            ("allow(3)", "allow", 3, 3),
            (" queue(1) ", "queue", 1, 1),
        ],
    )
    def test_known(self, text: str, kind: str, limit: int, at_once: int) -> None:
        overlap = Overlap.parse(text)
        assert (overlap.kind, overlap.limit, overlap.at_once) == (kind, limit, at_once)
        assert Overlap.parse(str(overlap)) == overlap
        assert Overlap.parse(overlap) is overlap

    @pytest.mark.parametrize(
        "text",
        ["", "skipp", "allow", "skip(1)", "queue()", "queue(-1)", "allow(2.5)", "allow(99999)", "Skip", "3"],
    )
    def test_unknown(self, text: str) -> None:
        with pytest.raises(
            ConfigurationError, match=r'use "skip", "queue", "queue\(5\)", "allow\(3\)" or "replace"'
        ):
            Overlap.parse(text)

    @pytest.mark.parametrize("text", ["queue(0)", "allow(0)"])
    def test_nothing_is_no_limit(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="admits nothing"):
            Overlap.parse(text)

    @pytest.mark.parametrize(
        ("overlap", "text"),
        [(Overlap(), "skip"), (Overlap("queue"), "queue(1)"), (Overlap("allow", 3), "allow(3)")],
    )
    def test_as_text(self, overlap: Overlap, text: str) -> None:
        assert str(overlap) == text


class TestJob:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"misfire": "newest"}, "misfire='newest' is not known; use one of latest, all, skip"),
            ({"after_crash": "retry"}, "after_crash='retry' is not known; use one of record, rerun"),
            ({"execute_on": "a b"}, "is not usable"),
            ({"misfire_after": timedelta(0)}, "job j: misfire_after must be above 0"),
            ({"misfire_after": timedelta(days=367)}, "job j: misfire_after .* at most a year"),
            ({"timeout": timedelta(0)}, "job j: timeout must be above 0"),
            ({"crash_attempts": 0}, "job j: crash_attempts must be a number between 1 and 100"),
            ({"crash_attempts": 101}, "crash_attempts"),
            ({"args": {"x": object()}}, "arguments of job j cannot be stored as JSON"),
            ({"args": {"x": "y" * 70_000}}, "arguments of job j: .* the limit is 65536"),
        ],
    )
    def test_it_says_what_is_wrong(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            Job("j", "work", **fields)

    @pytest.mark.parametrize(
        "job",
        [
            Job("j", "work"),
            FULL,
            Job("j", "work", every(minutes=5)),
            Job("j", "work", at(NOON)),
            Job("j", "work", misfire_after=timedelta(microseconds=1), timeout=timedelta(seconds=0.1)),
        ],
    )
    def test_it_comes_back_from_json(self, job: Job) -> None:
        back = job_from_json(json.loads(json.dumps(job_to_json(job))))
        assert back == job
        assert back.fingerprint == job.fingerprint

    def test_its_json_is_frozen(self) -> None:
        assert job_to_json(FULL) == {
            "id": "report:ch",
            "target": "app.report",
            "trigger": {"type": "cron", "expression": "30 2 * * *", "tz": "Europe/Zurich"},
            "args": {"region": "ch", "depth": 3},
            "overlap": "queue(2)",
            "misfire": "all",
            "misfire_after": 300.0,
            "retry": {
                "attempts": 5,
                "first": 1,
                "factor": 2.0,
                "cap": 60,
                "jitter": 0.5,
                "on": ["ValueError"],
            },
            "timeout": 120.0,
            "after_crash": "rerun",
            "crash_attempts": 4,
            "execute_on": "leader",
        }

    def test_its_fingerprint_is_frozen(self) -> None:
        """A change here would make every replica of the next release redefine every job."""
        assert Job("j", "work", every(minutes=5)).fingerprint == "1bb00f1ef4e7cbdc"
        assert FULL.fingerprint == "38c6f726cff97c51"

    def test_its_fingerprint_does_not_depend_on_the_order_of_arguments(self) -> None:
        one, two = Job("j", "work", args={"a": 1, "b": 2}), Job("j", "work", args={"b": 2, "a": 1})
        assert one.fingerprint == two.fingerprint

    @pytest.mark.parametrize(
        "change",
        [
            {"target": "other"},
            {"trigger": every(minutes=6)},
            {"args": {"a": 1}},
            {"overlap": Overlap("queue")},
            {"misfire": "skip"},
            {"misfire_after": timedelta(seconds=31)},
            {"retry": Retry()},
            {"timeout": timedelta(seconds=1)},
            {"after_crash": "rerun"},
            {"crash_attempts": 4},
            {"execute_on": "leader"},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_every_field_is_in_its_fingerprint(self, change: dict[str, Any]) -> None:
        plain: dict[str, Any] = {"target": "work", "trigger": every(minutes=5)}
        assert Job("j", **{**plain, **change}).fingerprint != Job("j", **plain).fingerprint


class TestStates:
    def test_the_final_ones(self) -> None:
        assert [state.value for state in State if state.final] == [
            "succeeded",
            "failed",
            "skipped",
            "missed",
            "lost",
            "cancelled",
        ]


class TestRecords:
    def test_a_gap_covers_its_beginning_not_its_end(self) -> None:
        gap = Gap(NOON, NOON + timedelta(seconds=10))
        assert [gap.covers(NOON + timedelta(seconds=s)) for s in (-1, 0, 9, 10)] == [False, True, True, False]
        assert Gap(NOON).covers(NOON + timedelta(days=9999))

    @pytest.mark.parametrize(("next_at", "behind"), [(-1, True), (0, True), (1, False), (None, False)])
    def test_a_calendar_is_behind_when_its_next_fire_is_due(self, next_at: int | None, behind: bool) -> None:
        moment = None if next_at is None else NOON + timedelta(seconds=next_at)
        job = Job("j", "work", every(minutes=1))
        assert job.trigger is not None
        segment = Segment(1, job.trigger, NOON - timedelta(hours=1), moment)
        record = JobRecord(job, job.fingerprint, NOON, NOON, segments=(segment,))
        assert record.behind_at(NOON) is behind
        assert not JobRecord(job, job.fingerprint, NOON, NOON).behind_at(NOON)

    def test_the_first_pause_that_covers_a_moment_is_found(self) -> None:
        pauses = (Gap(NOON - timedelta(hours=2), NOON - timedelta(hours=1)), Gap(NOON, note="now"))
        job = Job("j", "work")
        record = JobRecord(job, job.fingerprint, NOON, NOON, pauses=pauses)
        assert record.paused_at(NOON) == pauses[1]
        assert record.paused_at(NOON - timedelta(hours=2)) == pauses[0]
        assert record.paused_at(NOON - timedelta(minutes=30)) is None

    def test_a_row_spans_from_its_first_to_its_last_fire(self) -> None:
        one = FireRecord("k", "j", NOON)
        assert (one.first_due_at, one.last_due) == (NOON, NOON)
        many = FireRecord("k", "j", NOON, count=3, last_due_at=NOON + timedelta(seconds=2))
        assert (many.first_due_at, many.last_due) == (NOON, NOON + timedelta(seconds=2))

    @pytest.mark.parametrize(
        ("reason", "refers_to", "why"),
        [(None, None, None), ("paused", None, "paused"), ("coalesced", "j@x", "coalesced (j@x)")],
    )
    def test_why(self, reason: str | None, refers_to: str | None, why: str | None) -> None:
        assert FireRecord("k", "j", NOON, reason=reason, refers_to=refers_to).why == why

    def test_attempts_are_put_on_record_the_newest_kept(self) -> None:
        fire = FireRecord("k", "j", NOON, replica="a", started_at=NOON)
        for token in range(1, MAX_ATTEMPTS_KEPT + 6):
            fire = FireRecord(
                "k", "j", NOON, token=token, replica="a", started_at=NOON, attempts=fire.attempts
            )
            fire = fire.ended(NOON + timedelta(seconds=token), "retry", f"error {token}")
        assert [attempt.token for attempt in fire.attempts] == list(range(6, MAX_ATTEMPTS_KEPT + 6))
        assert (fire.attempts[-1].outcome, fire.attempts[-1].error) == ("retry", "error 25")
        assert fire.error == "error 25"
