"""`fencepost import systemd`: the corpus against systemd itself, and what units become."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fencepost.cli.migrate.compare import compare
from fencepost.cli.migrate.systemd import read_timers, span, units_of
from fencepost.cli.migrate.values import CannotCarryOver, Carried, Imported, ShellCommand
from tests.importing.oracles import systemd_analyze

LINES = (Path(__file__).parent / "corpus" / "oncalendar").read_text(encoding="utf-8").splitlines()
SPRING, AUTUMN = datetime(2026, 3, 20, 10, tzinfo=UTC), datetime(2026, 10, 20, 10, tzinfo=UTC)
COUNT = 50
SERVICE = "[Service]\nExecStart=/bin/work\n"


def imported(timer: str, service: str = SERVICE) -> Imported:
    return read_timers({"work.timer": f"[Timer]\n{timer}", "work.service": service}, "Europe/Zurich")


def only(timer: str, service: str = SERVICE) -> Carried:
    [job] = imported(timer, service).jobs
    return job


def corpus() -> tuple[list[str], list[str]]:
    last = max(number for number, line in enumerate(LINES) if line.startswith("#"))
    return LINES[1:last], LINES[last + 1 :]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize(
    "after", [SPRING, pytest.param(AUTUMN, marks=pytest.mark.slow)], ids=("spring", "autumn")
)
def test_the_next_50_fires_are_systemds_or_the_difference_is_reported(after: datetime) -> None:
    carried, _ = corpus()
    assert len(carried) >= 40
    for text in carried:
        job = only(f"OnCalendar={text}")
        compared = compare(job, after, COUNT)
        expected = systemd_analyze(text, "Europe/Zurich", after, len(compared.old))
        assert list(compared.old) == expected, text
        assert not compared.difference, text
        if list(compared.new) != expected:
            assert compared.at_changes, text


def test_what_has_no_cron_expression_is_left_out() -> None:
    for text in corpus()[1]:
        found = imported(f"OnCalendar={text}")
        assert not found.jobs, text
        [entry] = found.left_out
        assert entry.text == text
        assert entry.why
        assert entry.remedy


def test_some_fires_written_down_by_hand() -> None:
    """Also where systemd is not installed: a skipped time does not fire, a repeated one once, also every minute."""
    nightly = compare(only("OnCalendar=02:30"), SPRING, COUNT)
    assert nightly.at_changes.only_new == (datetime(2026, 3, 29, 1, tzinfo=UTC),)
    assert nightly.at_changes.only_old == ()
    half_hours = compare(only("OnCalendar=*:0/30"), SPRING, COUNT)
    assert half_hours.at_changes.only_new == (
        datetime(2026, 10, 25, 1, tzinfo=UTC),
        datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
    )
    last_friday = compare(only("OnCalendar=Fri *-*~07/1 17:00 UTC"), SPRING, 3)
    assert [f"{fire:%m-%d}" for fire in last_friday.old] == ["03-27", "04-24", "05-29"]
    assert last_friday.old == last_friday.new


def test_persistent_decides_about_missed_fires() -> None:
    assert only("OnCalendar=daily\nPersistent=true").policies == {"misfire": "latest"}
    assert only("OnCalendar=daily").policies == {"misfire": "skip"}


def test_timers_that_count_from_the_last_run() -> None:
    job = only("OnBootSec=5min\nOnUnitActiveSec=1h 30min")
    assert job.trigger.to_json() == {"type": "every", "seconds": 5400}
    assert {note.what for note in job.notes} == {"OnBootSec=5min", "OnUnitActiveSec"}


def test_random_delays_are_named() -> None:
    job = only("OnCalendar=daily\nRandomizedDelaySec=15m")
    assert [note.what for note in job.notes] == ["RandomizedDelaySec=15m"]


def test_several_calendars_are_several_jobs() -> None:
    jobs = imported("OnCalendar=daily\nOnCalendar=\nOnCalendar=02:00\nOnCalendar=14:00").jobs
    assert [(job.id, job.schedule) for job in jobs] == [("work", "02:00"), ("work-2", "14:00")]


@pytest.mark.parametrize(
    ("timer", "service", "why"),
    [
        ("OnBootSec=1min", SERVICE, "start of a machine"),
        ("OnCalendar=daily\nUnit=other.service", SERVICE, "other.service"),
        ("OnCalendar=daily", "[Service]\nType=oneshot\n", "ExecStart"),
        ("OnCalendar=daily", "[Service]\nExecStart=/bin/work %i\n", "%i"),
        ("OnCalendar=daily", "[Service]\nExecStart=/bin/work 'open\n", "quotation"),
        ("OnUnitActiveSec=soon", SERVICE, "time span"),
        ("OnCalendar=Fun 10:00", SERVICE, "day of the week"),
    ],
)
def test_timers_that_are_left_out(timer: str, service: str, why: str) -> None:
    found = imported(timer, service)
    assert not found.jobs
    [entry] = found.left_out
    assert why in entry.why
    assert entry.remedy


def test_a_service_becomes_a_command() -> None:
    service = (
        "[Service]\nType=oneshot\nUser=app\nWorkingDirectory=/srv/app\nTimeoutStartSec=10min\n"
        'Environment=A=1 "B=two words"\nEnvironmentFile=-/etc/default/app\nExecStartPre=/bin/check\n'
        "ExecStart=/bin/work --all \\\n  'one word' 100%%\n"
    )
    job = only("OnCalendar=daily", service)
    assert job.body == ShellCommand(
        ["/bin/work", "--all", "one word", "100%"], {"A": "1", "B": "two words"}, "/srv/app"
    )
    assert job.policies["timeout"] == 600
    assert {note.what for note in job.notes} == {
        "User=app",
        "ExecStartPre=",
        "EnvironmentFile=-/etc/default/app",
    }


def test_variables_and_several_commands_need_a_shell() -> None:
    service = "[Service]\nExecStart=-/bin/first ${A}x $B 'it`s' $$C\nExecStart=/bin/second a;b\n"
    body = only("OnCalendar=daily", service).body
    assert isinstance(body, ShellCommand)
    assert body.command == "{ /bin/first \"${A}x\" $B 'it`s' \"\\$C\" || true; } && /bin/second 'a;b'"


def test_what_systemctl_cat_prints_with_drop_ins() -> None:
    text = (
        "# /lib/systemd/system/work.timer\n[Timer]\nOnCalendar=daily\n\n"
        "# /etc/systemd/system/work.timer.d/override.conf\n[Timer]\nOnCalendar=\nOnCalendar=03:00\n\n"
        "# /lib/systemd/system/work.service\n# a comment\n" + SERVICE
    )
    [job] = read_timers(units_of(text), "UTC").jobs
    assert (job.id, job.schedule) == ("work", "03:00")


def test_spans() -> None:
    assert span("1h 30min") == timedelta(minutes=90)
    assert span("90") == timedelta(seconds=90)
    assert span("2d12h") == timedelta(days=2.5)
    for wrong in ("", "5 parsecs", "h", "9" * 90 + "w"):
        with pytest.raises(CannotCarryOver):
            span(wrong)
