"""`fencepost import crontab`: the corpus against a played cron daemon, and what lines mean."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fencepost.cli.migrate.compare import compare
from fencepost.cli.migrate.crontab import MACROS, name_of, read_crontab
from fencepost.cli.migrate.values import Carried, ShellCommand
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


@pytest.mark.parametrize(
    "after", [MOMENTS[0], pytest.param(MOMENTS[1], marks=pytest.mark.slow)], ids=("spring", "autumn")
)
def test_the_next_50_fires_are_those_of_a_cron_daemon(after: datetime) -> None:
    """Both the import's own reading and the new trigger: of a crontab nothing has to be reported."""
    for job in read_crontab(CORPUS, "UTC").jobs:
        expected = first(cron_daemon(MACROS.get(job.schedule, job.schedule), job.tz, after), COUNT)
        found = compare(job, after, COUNT)
        assert list(found.old) == expected, f"{job.origin}: the reading of {job.schedule} in {job.tz}"
        assert list(found.new) == expected, f"{job.origin}: {job.schedule} in {job.tz}"
        assert not found.difference, job.origin
        assert not found.at_changes, job.origin


def only(text: str, **options: bool) -> Carried:
    [job] = read_crontab(text, "UTC", **options).jobs
    return job


def command(text: str) -> ShellCommand:
    body = only(text).body
    assert isinstance(body, ShellCommand)
    return body


def test_environment_lines_hold_from_there_on() -> None:
    text = '0 1 * * * before\nA=1\n B = "two words" \n0 2 * * * after\nSHELL=/bin/bash\nHOME=/srv\n0 3 * * * bashed\n'
    before, after, bashed = (job.body for job in read_crontab(text, "UTC").jobs)
    assert before == ShellCommand("before")
    assert after == ShellCommand("after", {"A": "1", "B": "two words"})
    assert bashed == ShellCommand(["/bin/bash", "-c", "bashed"], {"A": "1", "B": "two words"}, "/srv")


def test_a_percent_sign_is_a_new_line_of_standard_input() -> None:
    assert command(r"0 1 * * * date +\%d").command == "date +%d"
    assert command("0 1 * * * cat%one%it's two").command == """printf '%s\\n' one 'it'"'"'s two' | { cat; }"""


def test_a_system_crontab_has_a_user() -> None:
    text = "17 * * * * root cd / && run-parts /etc/cron.hourly"
    job = only(text, system=True)
    assert job.body == ShellCommand("cd / && run-parts /etc/cron.hourly")
    notes = read_crontab(text, "UTC", system=True).notes
    assert any("root" in note.what for note in notes)


def test_mail_is_not_carried_over_and_that_is_said() -> None:
    assert any(note.what == "MAILTO" for note in read_crontab("MAILTO=ops\n0 1 * * * x", "UTC").notes)
    assert not any(note.what == "MAILTO" for note in read_crontab('MAILTO=""\n0 1 * * * x', "UTC").notes)


def test_a_line_that_is_left_out_does_not_show_its_command() -> None:
    for line in ("@reboot start --password hunter2", "99 * * * * start --password hunter2"):
        [entry] = read_crontab(line, "UTC").left_out
        assert "hunter2" not in entry.text


def test_a_zero_byte_is_left_out() -> None:
    [entry] = read_crontab("0 1 * * * a\0b", "UTC").left_out
    assert "zero byte" in entry.why


def test_an_unknown_zone_is_left_out_with_a_remedy() -> None:
    [entry] = read_crontab("CRON_TZ=Europe/Zurch\n0 1 * * * x", "UTC").left_out
    assert "Europe/Zurich" in entry.remedy


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/usr/local/bin/backup.sh --all", "backup"),
        ("cd /srv && python3 manage.py clearsessions", "manage"),
        ("nice -n 10 ionice -c3 /opt/reindex", "reindex"),
        ("flock -n /run/x.lock /opt/sync", "sync"),
        ("sudo -u www-data php /var/www/cron.php", "cron"),
        ("A=1 B=2 poll", "poll"),
        ("/bin/bash -c '/opt/inside.sh | tee'", "inside"),
        ("python3 -m app.poll", "app.poll"),
        ("timeout 30m long-job", "long-job"),
        ("'unclosed", "'unclosed"),
        ("", "job"),
    ],
)
def test_a_job_is_called_after_what_it_runs(text: str, name: str) -> None:
    assert name_of(text) == name
