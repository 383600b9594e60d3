"""The real command in a process of its own: what it prints, and the exit code it ends with."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost import __version__
from fencepost.cli import outcome

APPS = Path(__file__).parent / "apps"
COMMAND = [sys.executable, "-c", "from fencepost.cli import main; main()"]

USAGE, CONFIGURATION = 64, 78


def environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCEPOST_")}
    return {**kept, "COLUMNS": "120", **changes}


def fencepost(*arguments: str, cwd: Path = APPS, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, env=environment(**env), capture_output=True, text=True, timeout=120
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=APPS,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# run


def test_run_runs_the_jobs_and_ends_after_the_seconds_given():
    done = fencepost("run", "sample:scheduler", "--seconds", "0.6")
    assert done.returncode == 0, done.stderr
    assert 2 <= done.stdout.count("tick\n") <= 12
    assert set(done.stdout.split()) == {"tick"}  # logs are not data
    assert "3 jobs on memory://" in done.stderr
    assert "replica.left" in done.stderr


def test_the_installed_script_is_the_same_command():
    script = Path(sys.executable).with_name("fencepost")
    if not script.exists():
        pytest.skip("the package is not installed with its script")
    done = subprocess.run(
        [script, "--version"], capture_output=True, text=True, timeout=120, env=environment()
    )
    assert (done.returncode, done.stdout) == (0, f"fencepost, version {__version__}\n")


def test_run_verbose_tells_every_start():
    quiet = fencepost("run", "sample:scheduler", "--seconds", "0.3")
    verbose = fencepost("run", "sample:scheduler", "--seconds", "0.3", "-v")
    assert "started tick@" not in quiet.stderr
    assert "started tick@" in verbose.stderr


def test_a_failure_is_one_line_and_its_traceback_is_shown_on_request():
    quiet = fencepost("run", "sample:failing", "--seconds", "0.3")
    assert ": ValueError: row 7 is bad\n" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    debug = fencepost("run", "sample:failing", "--seconds", "0.3", FENCEPOST_LOG_LEVEL="DEBUG")
    assert 'raise ValueError("row 7 is bad")' in debug.stderr
    assert "started broken@" in debug.stderr


def test_run_logs_one_json_object_per_line_at_the_level_that_is_set():
    done = fencepost(
        "run", "sample:failing", "--seconds", "0.3", "--log-format", "json", FENCEPOST_LOG_LEVEL="error"
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert {line["event"] for line in lines} == {"run.failed"}
    assert {(line["error_type"], line["error"]) for line in lines} == {("ValueError", "row 7 is bad")}
    wrong = fencepost("run", "sample:failing", FENCEPOST_LOG_LEVEL="loud")
    assert wrong.returncode == CONFIGURATION
    assert "FENCEPOST_LOG_LEVEL: 'loud' is not a log level: use debug, info, warning or error" in wrong.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_job_finish_and_says_which_it_was(number):
    process = start("run", "sample:slow")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == (0 if number == signal.SIGTERM else 130)
    assert out == "finished\n"
    assert "replica.left" in err
    assert "Traceback" not in err


SERVE = ("serve", "sample:stuck", "--port", "0")


@pytest.mark.parametrize("command", [("run", "sample:stuck"), SERVE], ids=["run", "serve"])
def test_the_first_ctrl_c_says_what_it_waits_for_and_the_second_ends_at_once(command):
    process = start(*command)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        said = list(itertools.takewhile(lambda line: "waits up to" not in line, process.stderr))
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()  # communicate() alone would pass over lines that were read ahead
        process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Ctrl-C again ends at once" in "".join(said) + err
    assert "ended at once; cut off, and settled as after a crash: stuck@" in err


@pytest.mark.parametrize("command", [("run", "sample:slow"), ("serve", "sample:slow", "--port", "0")])
def test_sighup_drains(command):
    process = start(*command)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0
    assert out.endswith("finished\n")  # whatever was started before the drain began
    assert "waits up to 20 s for 1 run to end: slow@" in err or "nothing runs" in err
    assert "replica.left" in err


def test_under_nohup_a_hangup_is_ignored():
    script = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from fencepost.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, "run", "sample:slow"],
        cwd=APPS,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "finished\n"
        assert process.stdout.readline() == "started\n"  # and so it goes on
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "SIGHUP" not in err


def test_run_starts_a_dotted_attribute():
    done = fencepost("run", "sample:Deep.scheduler", "--seconds", "0")
    assert done.returncode == 0, done.stderr


# preview


def test_preview_as_json_is_the_calendar_from_a_moment_on():
    done = fencepost(
        "preview", "sample:scheduler", "nightly", "--from", "2026-03-28T00:00:00Z", "--count", "3", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        {"due_at": "2026-03-28T01:30:00.000000Z"},
        {"due_at": "2026-03-29T01:00:00.000000Z"},
        {"due_at": "2026-03-30T00:30:00.000000Z"},
    ]
    assert not done.stderr


def test_preview_as_a_table_shows_utc_and_the_zone():
    done = fencepost(
        "preview", "sample:scheduler", "nightly", "--from", "2026-03-28T00:00:00+01:00", "--count", "2"
    )
    assert done.returncode == 0, done.stderr
    assert "2026-03-28T01:30:00.000000Z" in done.stdout
    assert "2026-03-28 02:30:00+01:00" in done.stdout
    assert "2026-03-29 03:00:00+02:00" in done.stdout
    assert "in Europe/Zurich" in done.stdout
    assert "2026-03-30" not in done.stdout


def test_preview_without_options_shows_the_next_ten():
    done = fencepost("preview", "sample:scheduler", "tick", "--json")
    assert len(json.loads(done.stdout)) == 10


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nigthly"], "did you mean 'nightly'?"),
        (["by_hand"], "it runs when triggered"),
        (["nightly", "--from", "yesterday"], "write it like 2026-11-15T12:00:00Z"),
        (["nightly", "--from", "2026-03-28T00:00:00"], "append Z or +01:00"),
        (["nightly", "--count", "0"], "--count"),
        (["nightly", "--count", "many"], "--count"),
        ([], "Missing argument 'JOB'"),
    ],
)
def test_a_preview_that_makes_no_sense_is_a_usage_error(arguments, says, capfd, monkeypatch):
    monkeypatch.chdir(APPS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert outcome(["preview", "sample:scheduler", *arguments]) == USAGE
    out, err = capfd.readouterr()
    assert says in err
    assert not out


# Targets


@pytest.fixture
def folder(tmp_path):
    files = {
        "raises": "1 / 0",
        "unreadable": "def broken(:",
        "needs": "import a_package_that_nobody_has",
        "bad_job": "from fencepost import *\ns = Scheduler('memory://')\ns.job(every(minutes=0))(print)",
        "plain": "from fencepost import Scheduler\nscheduler = Scheduler()\nnumber = 5\n",
        "unknown_store": "from fencepost import Scheduler\nscheduler = Scheduler('mongodb://u:secret@db/x')",
    }
    for name, source in files.items():
        (tmp_path / f"{name}.py").write_text(source)
    return tmp_path


@pytest.mark.parametrize("command", ["run", "preview"])
@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        ("plain", USAGE, "must be module:attribute, as in app:scheduler"),
        (":scheduler", USAGE, "must be module:attribute"),
        ("plain:", USAGE, "must be module:attribute"),
        ("missing:scheduler", USAGE, "run from the folder that holds missing.py"),
        ("missing.deeper:scheduler", USAGE, "run from the folder that holds missing.py"),
        ("plain:schedular", USAGE, "did you mean 'scheduler'?"),
        ("plain:scheduler.", USAGE, "has no attribute"),
        ("plain:number", USAGE, "is a int, not a Scheduler"),
        ("raises:scheduler", CONFIGURATION, "ZeroDivisionError: division by zero (raises.py, line 1)"),
        ("unreadable:scheduler", CONFIGURATION, "SyntaxError"),
        ("needs:scheduler", CONFIGURATION, "'a_package_that_nobody_has', which is not installed"),
        ("bad_job:s", CONFIGURATION, "e.g. every(minutes=5)"),
    ],
)
def test_a_bad_target_ends_with_its_code_and_a_remedy(
    command, target, code, says, folder, capfd, monkeypatch
):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    for name in ("plain", "raises", "unreadable", "needs", "bad_job"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    arguments = [command, target] if command == "run" else [command, target, "job"]
    assert outcome(arguments) == code
    out, err = capfd.readouterr()
    assert says in err
    assert "Traceback" not in err
    assert not out


@pytest.mark.parametrize(
    ("arguments", "env", "code", "says"),
    [
        (["run", "plain"], {}, USAGE, "module:attribute"),
        (["run", "raises:scheduler"], {}, CONFIGURATION, "ZeroDivisionError"),
        (
            ["run", "plain:scheduler"],
            {"FENCEPOST_HEARTBEAT": "60", "FENCEPOST_LEADER_TTL": "30"},
            CONFIGURATION,
            "leader_ttl (30s) must be at least twice heartbeat (1m)",
        ),
        (["run", "plain:scheduler"], {"FENCEPOST_SLOTS": "lots"}, CONFIGURATION, "FENCEPOST_SLOTS"),
        (["run", "unknown_store:scheduler"], {}, CONFIGURATION, "memory://"),
        (["run"], {}, USAGE, "Missing argument 'TARGET'"),
        (["run", "plain:scheduler", "--seconds", "-1"], {}, USAGE, "--seconds"),
    ],
)
def test_the_process_ends_with_the_code_and_without_a_traceback(arguments, env, code, says, folder):
    done = fencepost(*arguments, cwd=folder, **env)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
    assert not done.stdout


# Usage


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["run", "--help"], ["preview", "-h"]])
def test_help_is_help(arguments, capfd):
    assert outcome(arguments) == 0
    assert "Usage: fencepost" in capfd.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["--nonsense"],
        ["run"],
        ["run", "a:b", "c"],
        ["run", "a:b", "--seconds", "soon"],
        ["run", "a:b", "--nonsense"],
        ["preview"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_64_and_never_2(arguments, capfd):
    assert outcome(arguments) == USAGE
    out, err = capfd.readouterr()
    assert "Usage: fencepost" in err
    assert not out
