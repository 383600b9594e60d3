"""An error that comes back is logged once with its traceback, then counted."""

from __future__ import annotations

import logging

import pytest

from fencepost.runs.recurring import AGAIN_AFTER, MOST_CAUSES, RecurringErrors

log = logging.getLogger("fencepost")


def raised(kind: type[Exception], text: str) -> Exception:
    try:
        raise kind(text)
    except Exception as error:
        return error


def test_each_cause_has_one_traceback_and_is_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    errors = RecurringErrors(log, lambda: 0.0)
    for number in range(1, 12_346):
        errors.log("the loop failed", raised(ValueError, f"value {number}"), f"job{number}")
    errors.log("the loop failed", raised(KeyError, "another type"))
    errors.log("another loop failed", raised(ValueError, "value"))
    assert [record.getMessage() for record in caplog.records] == [
        "the loop failed: job1",
        "the loop failed: job10, 10 times so far: ValueError: value 10",
        "the loop failed: job100, 100 times so far: ValueError: value 100",
        "the loop failed: job1000, 1000 times so far: ValueError: value 1000",
        "the loop failed: job10000, 10000 times so far: ValueError: value 10000",
        "the loop failed",
        "another loop failed",
    ]
    assert [record.exc_info is not None for record in caplog.records] == [True, *[False] * 4, True, True]


def test_a_cause_that_lasts_is_mentioned_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    errors = RecurringErrors(log, lambda: now)
    for _ in range(9):
        errors.log("it failed", raised(ValueError, "again"))
        now += AGAIN_AFTER / 3
    assert [record.getMessage().partition(",")[2] for record in caplog.records] == [
        "",
        " 4 times so far: ValueError: again",
        " 7 times so far: ValueError: again",
    ]


def test_after_a_recovery_the_traceback_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    errors = RecurringErrors(log, lambda: now)
    for _ in range(3):
        errors.log("it failed", raised(ValueError, "again"))
        errors.clear("it failed")
    assert len(caplog.records) == 1, "not within a minute"
    now += AGAIN_AFTER
    errors.clear("it failed")
    errors.log("it failed", raised(ValueError, "again"))
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


def test_causes_without_end_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    errors = RecurringErrors(log, lambda: 0.0)
    for number in range(2 * MOST_CAUSES):
        errors.log(f"loop {number} failed", ValueError())
    assert len(errors._seen) <= MOST_CAUSES


def test_an_error_that_cannot_be_shown_is_counted_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    errors = RecurringErrors(log, lambda: 0.0)
    for _ in range(10):
        errors.log("it failed", Broken())
    assert caplog.records[-1].getMessage() == "it failed, 10 times so far: Broken"
