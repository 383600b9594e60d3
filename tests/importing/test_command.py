"""The command `fencepost import`: what it prints loads, what it refuses, and its exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import subprocess
import sys
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli import outcome
from fencepost.cli.target import load

CORPUS = Path(__file__).parent / "corpus"
FROM = "2026-03-20T10:00:00Z"
SOURCES = {
    "crontab": ("crontab", "crontab", "--tz", "UTC"),
    "kubernetes": ("kubernetes", "cronjobs.yaml"),
    "policies": ("kubernetes", "policies.yaml"),
    "celery": ("celery", "beat.py", "--app", "beat:app"),
    "tables": ("django-celery-beat", "beat_tables.json", "--app", "shop.celery:app"),
    "apscheduler": ("apscheduler", "jobs.py"),
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("FENCEPOST_"):
            monkeypatch.delenv(name)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = outcome(arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("name", SOURCES)
def test_the_python_it_prints_loads_and_fires_as_it_says(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"imported_{name}"
    told = told_by(name, "python")
    assert told["complete"] == (name == "kubernetes"), "all others hold something that cannot be carried over"
    (tmp_path / f"{module}.py").write_text(told["code"], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    scheduler = load(f"{module}:scheduler")
    assert list(scheduler.jobs) == [job["id"] for job in told["jobs"]]
    for job in told["jobs"][:: max(1, len(told["jobs"]) // 4)]:
        arguments = ("preview", f"{module}:scheduler", job["id"], "--from", FROM, "--count", "20", "--json")
        fires = [fire["due_at"] for fire in json.loads(run(capsys, *arguments)[1])]
        assert fires == job["fires"]["new"], job["id"]


@pytest.mark.parametrize("name", ["crontab", "kubernetes", "policies"])
def test_the_toml_it_prints_loads_and_fires_as_it_says(name: str, tmp_path: Path) -> None:
    told = told_by(name, "toml")
    (tmp_path / "fencepost.toml").write_text(told["code"], encoding="utf-8")
    scheduler = load("fencepost.toml")
    assert list(scheduler.jobs) == [job["id"] for job in told["jobs"]]
    for job in told["jobs"]:
        declared = scheduler.jobs[job["id"]].trigger
        assert declared is not None
        assert declared.to_json() == job["trigger"], job["id"]


def test_both_formats_run_the_same_commands(tmp_path: Path) -> None:
    """Quotes, dollars, percent signs, brackets and umlauts included."""
    (tmp_path / "fencepost.toml").write_text(told_by("crontab", "toml")["code"], encoding="utf-8")
    (tmp_path / "same_commands.py").write_text(told_by("crontab", "python")["code"], encoding="utf-8")
    toml, code = load("fencepost.toml"), load("same_commands:scheduler")
    for id in toml.jobs:
        there, here = toml.function_of(id), code.function_of(id)
        assert (there.argv, there.env) == (here.argv, here.env), id  # type: ignore[union-attr]


@cache
def told_by(name: str, form: str) -> dict[str, Any]:
    kind, file, *others = SOURCES[name]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = outcome(
            ["import", kind, str(CORPUS / file), *others, "--format", form, "--json", "--from", FROM]
        )
    told: dict[str, Any] = json.loads(said.getvalue())
    assert code == (0 if told["complete"] else 1)
    return told


def test_what_it_prints_is_the_code_and_the_report_goes_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "import", "kubernetes", str(CORPUS / "policies.yaml"))
    assert code == 1
    assert out == told_by("policies", "toml")["code"]
    assert "suspended" in err


def test_a_crontab_command_runs_as_cron_would_run_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a process of its own, with the trigger of the imported file."""
    (tmp_path / "tab").write_text(
        'GREETING="it\'s on"\n0 1 * * * (echo "$GREETING 100\\%"; cat) > said%one%two\n'
    )
    assert run(capsys, "import", "crontab", "tab", "--tz", "UTC", "-o", "fencepost.toml")[0] == 0
    command = [sys.executable, "-m", "fencepost", "trigger", "fencepost.toml", "job", "--here", "--wait"]
    job = next(iter(load("fencepost.toml").jobs))
    command[5] = job
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "said").read_text() == "it's on 100%\none\ntwo\n"


def test_a_file_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tab").write_text("0 1 * * * work\n")
    (tmp_path / "fencepost.toml").write_text("mine")
    (tmp_path / "app.py").symlink_to(tmp_path / "nowhere")
    for name in ("fencepost.toml", "app.py"):
        code, out, err = run(capsys, "import", "crontab", "tab", "-o", name)
        assert (code, out) == (64, "")
        assert "exists" in err
    assert (tmp_path / "fencepost.toml").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_o_chooses_the_format_and_keeps_secrets_to_the_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tab").write_text("PASSWORD=hunter2\n0 1 * * * work\n")
    code, out, err = run(capsys, "import", "crontab", "tab", "--tz", "UTC", "-o", "jobs.py")
    assert code == 0
    assert "hunter2" not in out + err
    assert "fencepost run jobs:scheduler" in out
    assert "hunter2" in (tmp_path / "jobs.py").read_text()
    assert stat.S_IMODE((tmp_path / "jobs.py").stat().st_mode) == 0o600


def test_what_could_steer_a_terminal_is_written_as_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tab").write_text(
        "0 1 * * * echo '\x1b[2J\x9b\x7f\u2028 ä'\n0 2 * * \x1b[31m x\n", encoding="utf-8"
    )
    _, out, err = run(capsys, "import", "crontab", "tab", "--tz", "UTC")
    assert all(char.isprintable() or char == "\n" for char in out + err)
    (tmp_path / "fencepost.toml").write_text(out, encoding="utf-8")
    function = load("fencepost.toml").function_of("echo")
    assert function.argv[-1] == "echo '\x1b[2J\x9b\x7f\u2028 ä'"  # type: ignore[union-attr]


def test_standard_input(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", "import", "crontab", "-", "--tz", "UTC"],
        input="0 1 * * * work\n",
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 0
    assert 'cron = "0 1 * * *"' in done.stdout
    assert "1 of 1 entries" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("crontab", "nowhere"), 78, "cannot read"),
        (("crontab", "."), 64, "folder"),
        (("crontab", "empty"), 78, "holds no entry"),
        (("crontab", "tab", "--tz", "Europe/Zurch"), 78, "did you mean"),
        (("crontab", "tab", "--from", "yesterday"), 64, "--from"),
        (("crontab", "tab", "--count", "0"), 64, "--count"),
        (("crontab", "tab", "-o", "no/such/folder.py"), 78, "cannot write"),
        (("cron", "tab"), 64, "crontab"),
        (("crontab",), 64, "FILE"),
        (("systemd", "tab"), 64, "systemctl cat"),
        (("celery", "nowhere:app"), 64, "no module"),
        (("celery", "os:path"), 64, "not a Celery app"),
        (("apscheduler", "os:path"), 64, "not an APScheduler"),
        (("apscheduler", "jobs.py", "--format", "toml"), 64, "Python functions"),
        (("celery", "beat.py", "--format", "toml"), 64, "--app"),
        (("celery", "beat.py", "--app", "x; import os"), 64, "module:attribute"),
    ],
)
def test_what_is_refused_names_a_remedy(
    arguments: tuple[str, ...], code: int, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tab").write_text("0 1 * * * work\n")
    (tmp_path / "empty").write_text("# nothing\n")
    (tmp_path / "jobs.py").write_text("def f(): pass\ns.add_job(f, 'cron', hour=1)\n")
    (tmp_path / "beat.py").write_text("beat_schedule = {'a': {'task': 't', 'schedule': 5}}\n")
    found, out, err = run(capsys, "import", *arguments)
    assert (found, out) == (code, "")
    assert word in err


def test_files_that_are_too_large_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "large").write_bytes(b"0 1 * * * work\n" * 200_000)
    (tmp_path / "many").write_bytes(b"0 1 * * * work\n" * 2001)
    for name in ("large", "many"):
        code, _, err = run(capsys, "import", "crontab", name, "--tz", "UTC")
        assert code == 78
        assert "parts" in err


def test_only_a_named_module_is_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "live_beat.py").write_text(
        "open('ran', 'w').close()\nfrom celery import Celery\napp = Celery('x')\n"
        "app.conf.beat_schedule = {'a': {'task': 't', 'schedule': 5.0}}\n"
    )
    code, _, err = run(capsys, "import", "celery", "live_beat.py")
    assert (code, (tmp_path / "ran").exists()) == (0, False)
    code, out, err = run(capsys, "import", "celery", "live_beat:app")
    assert (code, (tmp_path / "ran").exists()) == (0, True)
    assert "ran its code" in err
    assert "from live_beat import app" in out


def test_the_jobs_send_what_beat_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions are called; the app they import is one that remembers."""
    (tmp_path / "sent_by_beat.py").write_text(told_by("celery", "python")["code"], encoding="utf-8")
    (tmp_path / "beat.py").write_text(
        "class app:\n    sent = []\n    send_task = lambda *a, **k: app.sent.append((a, k))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "beat", raising=False)
    function = load("sent_by_beat:scheduler").function_of("everything")
    assert function is not None
    function()
    args = [16, "it's", ["a", None, True]]
    kwargs = {"region": "ch", "deep": {"n": 1.5}}
    [sent] = sys.modules["beat"].app.sent
    options = {"queue": "slow", "priority": 5, "expires": 600.0}
    assert sent == (("shop.tasks.send",), {"args": args, "kwargs": kwargs, **options})
    del sys.modules["beat"]


def test_timers_beside_their_services(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "work.timer").write_text("[Timer]\nOnCalendar=*-*-* 02:30\n")
    (tmp_path / "work.service").write_text("[Service]\nExecStart=/bin/work\nTimeoutStartSec=10min\n")
    for name in ("work.timer", "."):
        code, out, err = run(capsys, "import", "systemd", name, "--tz", "Europe/Zurich", "--from", FROM)
        assert code == 0
        assert 'cron = "30 2 * * *"' in out
        (tmp_path / "fencepost.toml").write_text(out)
        job = load("fencepost.toml").jobs["work"]
        assert job.timeout == timedelta(minutes=10)
        assert "when the clock changes: only now 2026-03-29 01:00:00Z" in err


def test_a_system_crontab_is_known_by_its_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cron.d").mkdir()
    (tmp_path / "cron.d" / "app").write_text("0 1 * * * root work\n")
    assert '"work"' in run(capsys, "import", "crontab", "cron.d/app")[1]
    assert '"root work"' in run(capsys, "import", "crontab", "cron.d/app", "--no-system")[1]


def test_what_differs_exits_1_and_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A beat interval of a day moves by an hour when the clock changes, ours does not."""
    (tmp_path / "beat.py").write_text(
        "from datetime import timedelta\ntimezone = 'Europe/Zurich'\n"
        "beat_schedule = {'a': {'task': 't', 'schedule': timedelta(days=1)}}\n"
    )
    code, _, err = run(capsys, "import", "celery", "beat.py", "--from", FROM)
    assert code == 1
    assert "DIFFERS" in err
    assert "only before 2026-03-29 09:00:00Z" in err
