"""What is logged when a run ends: how it failed, when it is tried again, how long it took."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import json
import logging
import re

import pytest

from fencepost import Retry, Scheduler, every
from fencepost.web.logs import Formatter
from tests.execution.apps import failing
from tests.unit.apps.waiting import eventually

SELDOM = every(days=300)


@pytest.fixture
async def scheduler(caplog):
    caplog.set_level(logging.DEBUG, "fencepost")
    scheduler = Scheduler("memory://", run_ttl="2s", leader_ttl="2s", heartbeat="0.3s", drain_timeout="1s")
    yield scheduler
    await scheduler.stop()


async def ended(scheduler, caplog, job, kinds=("failed",)) -> list[logging.LogRecord]:
    """The records about the run's end, once it has ended."""
    if scheduler.replica is None:
        await scheduler.start()
    handle = await scheduler.trigger(job)
    await handle.wait(timeout=60)

    def about_it():
        events = [(record, getattr(record, "fencepost_event", None)) for record in list(caplog.records)]
        return [
            record for record, event in events if event and event.key == handle.key and event.kind in kinds
        ]

    await eventually(lambda: len(about_it()) >= len(kinds))
    return about_it()


def as_json(record: logging.LogRecord) -> dict[str, object]:
    return dict(json.loads(Formatter("json", str).format(record)))


@pytest.mark.parametrize("function", [failing.raises, failing.raises_async])
async def test_a_failure_is_logged_with_type_message_and_the_exception_itself(scheduler, caplog, function):
    scheduler.job(SELDOM, id="broken")(function)
    [record] = await ended(scheduler, caplog, "broken")
    line = record.getMessage()
    assert re.fullmatch(
        r"failed broken!\w+ token 1 after [\d.]+ s: ValueError: row 7 is bad, see line 2", line
    )
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    kind, error, trace = record.exc_info
    assert (kind, str(error)) == (ValueError, "row 7 is bad,\nsee line 2")
    assert trace is not None  # an error tracker shows where it was raised
    fields = as_json(record)
    assert (fields["error_type"], fields["error"]) == ("ValueError", "row 7 is bad, see line 2")
    assert fields["reason"] == "raised an exception"
    assert isinstance(fields["duration_seconds"], float)
    assert "failing.py" in str(fields["exception"])


async def test_the_text_log_shows_the_traceback_only_when_it_is_asked_for(scheduler, caplog):
    scheduler.job(SELDOM, id="broken")(failing.raises)
    [record] = await ended(scheduler, caplog, "broken")
    formatter = Formatter("text", str)
    assert "Traceback" not in formatter.format(record)
    assert "Traceback" in logging.Formatter().format(record)  # the host's own, beside ours
    assert "Traceback" not in formatter.format(record)
    formatter.tracebacks = True
    assert "Traceback" in formatter.format(record)
    assert "in raises" in formatter.format(record)


def test_an_unexpected_error_of_ours_keeps_its_traceback():
    try:
        raise RuntimeError("boom")
    except RuntimeError as error:
        record = logging.LogRecord("fencepost", logging.ERROR, "x", 1, "x", (), (type(error), error, None))
    assert "RuntimeError: boom" in Formatter("text", str).format(record)


async def test_a_retry_says_which_attempt_failed_and_when_it_is_tried_again(scheduler, caplog):
    scheduler.job(SELDOM, id="flaky", retry=Retry(attempts=2, first=0.05, jitter=0))(failing.raises)
    first, last = await ended(scheduler, caplog, "flaky", ("retrying", "failed"))
    assert re.search(
        r"^retrying flaky!\w+ token 1 after [\d.]+ s \(failed, attempt 1 of 2, again in 0\.050 s\): ValueError: row 7",
        first.getMessage(),
    )
    assert first.exc_info is not None
    fields = as_json(first)
    assert (fields["attempt"], fields["attempts"], fields["retry_in_seconds"]) == (1, 2, 0.05)
    assert re.search(
        r"^failed flaky!\w+ token 2 after [\d.]+ s, attempt 2 of 2: ValueError: row 7", last.getMessage()
    )


async def test_a_success_says_how_long_it_took(scheduler, caplog):
    scheduler.job(SELDOM, id="well")(failing.takes_a_moment)
    [record] = await ended(scheduler, caplog, "well", ("succeeded",))
    took = re.fullmatch(r"succeeded well!\w+ token 1 after ([\d.]+) s", record.getMessage())
    assert took is not None
    assert float(took[1]) >= 0.02
    assert record.exc_info is None
    assert as_json(record)["duration_seconds"] == pytest.approx(float(took[1]), abs=0.06)


async def test_a_timeout_is_logged_as_such(scheduler, caplog):
    scheduler.job(SELDOM, id="late", timeout=0.05)(failing.endless)
    [record] = await ended(scheduler, caplog, "late")
    assert record.getMessage().endswith(": timed out after 0:00:00.050000")
    assert record.exc_info is not None
    assert record.exc_info[0] is TimeoutError


async def test_secrets_are_masked_in_the_line(scheduler, caplog):
    scheduler.job(SELDOM, id="leaky")(failing.leaks)
    [record] = await ended(scheduler, caplog, "leaky")
    assert record.getMessage().endswith(": ConnectionError: postgresql://app:***@db/app is down")
    assert "pa55word" not in str({**as_json(record), "exception": ""})


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("command", "line", "code"),
    [
        (["sh", "-c", "echo one; echo the disk is full >&2; exit 3"], "exit code 3: the disk is full", 3),
        (["sh", "-c", "exit 4"], "exit code 4", 4),
        (["no-such-program"], "exit code 127: command not found: no-such-program", 127),
        (["/no/such/program"], "exit code 127: command not found: /no/such/program", 127),
        (["/etc/passwd"], "exit code 126: cannot be run (Permission denied): /etc/passwd", 126),
    ],
)
async def test_a_command_logs_its_exit_code_and_its_last_line(scheduler, caplog, command, line, code):
    scheduler.command(command, SELDOM, id="backup")
    [record] = await ended(scheduler, caplog, "backup")
    assert record.getMessage().endswith(f" s: {line}")
    assert as_json(record)["exit_code"] == code
    assert "error_type" not in as_json(record)


@pytest.mark.cluster
async def test_a_command_whose_folder_is_missing_says_so(scheduler, caplog):
    scheduler.command(["true"], SELDOM, id="lost", cwd="/no/such/folder")
    [record] = await ended(scheduler, caplog, "lost")
    assert record.getMessage().endswith(
        ": cannot enter its working folder /no/such/folder: No such file or directory"
    )


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("function", "line"),
    [
        (failing.raises, "ValueError: row 7 is bad, see line 2"),
        (failing.cannot_be_shown, "Unspeakable: it cannot be shown"),
        (failing.dies, "its process was killed by SIGKILL"),
    ],
)
async def test_what_a_process_raised_is_logged_by_its_own_type(scheduler, caplog, function, line):
    scheduler.job(SELDOM, id="apart", executor="process")(function)
    [record] = await ended(scheduler, caplog, "apart")
    assert record.getMessage().endswith(f" s: {line}")
    assert record.exc_info is not None
    if function is failing.raises:  # the exception stayed in the process: its traceback came here as text
        assert "failing.py" in str(record.exc_info[1])
        assert as_json(record)["error_type"] == "ValueError"
