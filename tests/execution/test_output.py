"""What a run says is kept with its fire: the end of it, in whole lines, without secrets."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencepost import Fire, Retry, Scheduler, every
from fencepost.model import FireRecord
from fencepost.replica.settler import merged
from fencepost.runs.masking import mask_for, secrets_in
from fencepost.runs.output import LIMIT, LONGEST_LINE, Lines, Output
from fencepost.store.base import Report
from tests.execution.apps import talk
from tests.unit.apps.waiting import eventually

RECORD = Fire.fake().record
SELDOM = every(days=300)

# --- the end of it ------------------------------------------------------------------------------------------


def test_whole_lines_are_kept_and_what_was_left_out_is_counted():
    output = Output(RECORD)
    for number in range(5_000):
        output.add(f"line {number}")
    lines = str(output).splitlines()
    assert lines[-1] == "line 4999"
    assert len(str(output)) <= LIMIT + 50
    left_out = 5_000 - (len(lines) - 1)
    assert lines[0] == f"… {left_out} earlier lines left out"
    assert lines[1] == f"line {left_out}"


def test_one_endless_line_is_cut():
    output, lines = Output(RECORD), Lines()
    for _ in range(100):
        output.add(lines.take(b"x" * 4096))
    output.add(lines.take(b"\nthe end"))
    output.add(lines.take(b""))
    cut, end = str(output).splitlines()
    assert len(cut) == LONGEST_LINE
    assert cut.endswith("…")
    assert end == "the end"


def test_lines_are_put_together_from_pieces_and_letters_from_bytes():
    lines = Lines()
    pieces = "grün\nblau\nrot".encode()
    taken = [lines.take(pieces[n : n + 1]) for n in range(len(pieces))]
    assert [each for each in [*taken, lines.take(b"")] if each] == ["grün", "blau", "rot"]


def test_the_attempts_before_are_kept_above():
    first = Output(RECORD)
    first.add("one")
    second = Output(FireRecord(**{**RECORD.__dict__, "output": str(first), "token": 7}))
    second.add("two")
    assert str(second) == "one\n— token 7 —\ntwo"
    assert second.last(100) == "two"


def test_the_count_of_what_was_left_out_goes_on():
    first = Output(RECORD)
    for number in range(3_000):
        first.add(f"{number:020}")
    left_out = int(str(first).split()[1])
    second = Output(FireRecord(**{**RECORD.__dict__, "output": str(first)}))
    second.add("x" * 500)
    assert int(str(second).split()[1]) > left_out
    assert str(second).count("left out") == 1


def test_what_a_terminal_would_obey_and_what_cannot_be_stored_is_left_out():
    output = Output(RECORD)
    output.add("\x1b[31mred\x1b[0m \x00\x07bell \udce4 ü")
    assert str(output) == "red bell \ufffd ü"


def test_output_and_progress_of_one_run_travel_together():
    both = merged(Report("k", 1, {"done": 1}), Report("k", 1, output="said"))
    assert (both.progress, both.output) == ({"done": 1}, "said")
    assert merged(both, Report("k", 1, {"done": 2})).output == "said"
    assert merged(both, Report("k", 2, {"done": 0})).output is None, "of another attempt"


# --- without secrets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("connecting to postgresql://app:s3cr3tpw@db:5432/app", "s3cr3tpw"),
        ("redis://:hunter2hunter2@cache", "hunter2hunter2"),
        ("Authorization: Bearer eyJhbGciOi.payload.sig", "eyJhbGciOi"),
        ("{'Authorization': 'Basic dXNlcjpwdw=='}", "dXNlcjpwdw"),
        ("using bearer abcdefghijkl for it", "abcdefghijkl"),
        ("password=hunter22", "hunter22"),
        ('{"client_secret": "with spaces in it"}', "with spaces"),
        ("DB_PASSWORD: letmein99", "letmein99"),
        ("GET /x?api_key=abc123&y=1", "abc123"),
        ("token='abc def'", "abc def"),
        ("the key is zugangscode-4711", "zugangscode"),
        ("line two of it: mehrzeilig", "mehrzeilig"),
        ("the url's password alone: urlpasswort", "urlpasswort"),
    ],
)
def test_secrets_are_masked(text, hidden):
    env = {
        "STRIPE_API_KEY": "zugangscode-4711",
        "TLS_PRIVATE_KEY": "BEGIN\nmehrzeilig\nEND",
        "DATABASE_URL": "postgres://me:urlpasswort@host/db",
    }
    masked = mask_for(env)(text)
    assert hidden not in masked
    assert "***" in masked


def test_ordinary_words_stay():
    env = {
        "PWD": "/srv/app",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "API_TOKEN_FILE": "/run/token",
        "X_TOKEN": "short",
    }
    assert secrets_in(env | {"GIT_AUTHOR_NAME": "Jane Doe", "FIRE_KEY": "job@now!"}) == frozenset()
    text = "read 12 rows from /srv/app in 0:00:01; short tokens, mail to ann@example.com, http://host:80/a"
    assert mask_for(env)(text) == text


def test_masking_takes_its_time_but_not_more():
    """No pattern looks at the same text again and again."""
    begun = time.thread_time()
    for text in ("a" * 20_000, "password" * 2_500, "://" * 6_000, "token = " * 2_000, "x:" * 10_000):
        mask_for({})(text)
    assert time.thread_time() - begun < 2.0


# --- in real runs ---------------------------------------------------------------------------------------------


@pytest.fixture
async def scheduler(tmp_path):
    scheduler = Scheduler(
        store=f"sqlite:///{tmp_path}/app.db",
        run_ttl="2s",
        leader_ttl="2s",
        heartbeat="0.5s",
        drain_timeout="1s",
    )
    yield scheduler
    await scheduler.stop()


async def settled(scheduler, job, seconds=6):
    handle = await scheduler.trigger(job)
    return await handle.wait(timeout=seconds)


async def test_log_records_are_kept_with_the_run_in_whose_context_they_are_made(scheduler):
    log = logging.getLogger("tests.talk")

    @scheduler.task
    async def coroutine():
        log.warning("in a coroutine, password=%s", "hunter22")
        try:
            raise KeyError("lost")
        except KeyError:
            log.exception("with its traceback")

    @scheduler.task
    def thread():
        log.error("in a thread")
        log.error("%d apples", "many")  # does not fit: whoever handles it says so

    @scheduler.task
    def silent():
        return

    raise_on_misfit, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        async with scheduler:
            said = await settled(scheduler, coroutine)
            other = await settled(scheduler, thread)
            nothing = await settled(scheduler, silent)
    finally:
        logging.raiseExceptions = raise_on_misfit
    first, second, *_, last = said.output.splitlines()
    assert first.endswith("Z WARNING tests.talk: in a coroutine, password=***")
    assert second.endswith("Z ERROR tests.talk: with its traceback")
    assert last == "KeyError: 'lost'"
    assert "in a thread" in other.output
    assert "%d apples" in other.output
    assert "coroutine" not in other.output
    assert nothing.output is None


async def test_the_hosts_logging_is_left_as_it_is(scheduler):
    root = logging.getLogger()
    before = list(root.handlers), root.level
    async with scheduler:
        assert (list(root.handlers), root.level) == before


async def test_what_a_process_prints_and_logs_is_kept_and_passed_on(scheduler, capfd):
    scheduler.task(talk.talk, executor="process")
    async with scheduler:
        fire = await settled(scheduler, "talk")
    assert fire.state == "succeeded"
    assert {"to stdout, token=***", "to stderr"} <= set(fire.output.splitlines())
    assert "WARNING talk: to the log" in fire.output
    passed_on = capfd.readouterr()
    assert "to stdout, token=abcdef" in passed_on.out, "what is stored is masked, not what the host prints"
    assert "to stderr" in passed_on.err


async def test_what_a_command_prints_is_kept(scheduler):
    scheduler.command(
        "echo one; echo two >&2; echo $WORD", SELDOM, id="say", shell=True, env={"WORD": "three"}
    )
    scheduler.command(
        "echo $DB_PASSWORD; exit 4", SELDOM, id="leak", shell=True, env={"DB_PASSWORD": "hunter2hunter2"}
    )
    async with scheduler:
        said, leaked = await settled(scheduler, "say"), await settled(scheduler, "leak")
    assert said.output == "one\ntwo\nthree"
    assert leaked.output == "***"
    assert leaked.error == "exit code 4\n***"


async def test_an_error_that_cannot_be_stored_as_it_is_does_not_keep_the_run_from_being_settled(
    postgres_url, monkeypatch
):
    scheduler = Scheduler(store=postgres_url)
    # A report of this test could not be sent from one process to another with such a record in it.
    for name in ("tests.talk", "fencepost"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", False)

    @scheduler.task
    async def breaks():
        logging.getLogger("tests.talk").error("nul \0 and \ud800")
        raise ValueError("nul \0 and \ud800, password=hunter22")

    async with scheduler:
        fire = await settled(scheduler, breaks)
    assert fire.error.endswith("ValueError: nul  and \ufffd, password=***\n")
    assert "nul  and \ufffd" in fire.output


async def test_every_attempt_is_kept(scheduler):
    @scheduler.job(SELDOM, id="tries", retry=Retry(attempts=2, first=0.1))
    async def tries(fire):
        logging.getLogger("tests.talk").warning("attempt %d", fire.attempt)
        if fire.attempt == 1:
            raise OSError("once more")

    async with scheduler:
        fire = await settled(scheduler, "tries")
    first, between, second = fire.output.splitlines()
    assert first.endswith("attempt 1")
    assert between == f"— token {fire.token} —"
    assert second.endswith("attempt 2")


async def test_output_and_progress_are_reported_while_it_runs(scheduler):
    @scheduler.task
    def long(fire):
        logging.getLogger("tests.talk").warning("begun")
        fire.report(done=1, total=2)
        while not fire.fenced_out:
            time.sleep(0.01)
        fire.check()

    async with scheduler:
        handle = await scheduler.trigger(long)
        record = await handle.record()
        for _ in range(400):
            record = await handle.record()
            if record.output and record.progress:
                break
            await _soon()
        assert record.state == "running"
        assert record.output.endswith("begun")
        assert record.progress["done"] == 1
        await scheduler.cancel(handle.key)
        await handle.wait(timeout=60)


async def _soon():
    await asyncio.sleep(0.01)


APP = """
import sys
from fencepost import Scheduler, every
scheduler = Scheduler(store=sys.argv[1], leader_ttl=2, run_ttl=2, heartbeat=0.5)
scheduler.command("echo the last words; sleep 600", every(days=300), id="doomed", shell=True)
if __name__ == "__main__":
    scheduler.run()
"""


@pytest.mark.cluster
async def test_the_log_of_a_killed_run_is_there(tmp_path):
    url = f"sqlite:///{tmp_path}/app.db"
    (tmp_path / "app.py").write_text(APP)
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "app.py"), url], env={**os.environ, "PYTHONPATH": str(root)}
    )
    outside = Scheduler(store=url)
    try:
        await eventually((tmp_path / "app.db").exists, 20)
        handle = await _triggered(outside, "doomed")
        for _ in range(500):
            if (await handle.record()).output:
                break
            await _soon()
        process.kill()
        process.wait()
        assert (await handle.record()).output == "the last words"
    finally:
        await outside.stop()
        process.kill()
        process.wait()


async def _triggered(scheduler, job):
    for _ in range(500):
        try:
            return await scheduler.trigger(job)
        except ValueError:  # not declared yet
            await _soon()
    raise AssertionError(f"{job} was not declared in time")
