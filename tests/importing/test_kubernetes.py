"""`fencepost import kubernetes`: the corpus against a walk minute by minute, and what a CronJob's settings become."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from fencepost.cli.migrate.compare import compare
from fencepost.cli.migrate.kubernetes import read_cronjobs
from fencepost.cli.migrate.values import Carried, ShellCommand
from fencepost.errors import ConfigurationError
from tests.importing.oracles import MONTHS, WEEKDAYS, first, wall_walk

FOLDER = Path(__file__).parent / "corpus"
CORPUS = (FOLDER / "cronjobs.yaml").read_text(encoding="utf-8")
POLICIES = (FOLDER / "policies.yaml").read_text(encoding="utf-8")
AFTER = datetime(2026, 3, 20, 10, tzinfo=UTC)
COUNT = 50
DESCRIPTORS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class GoCron:
    """The schedule as the controller's library keeps it: a bit mask per field, and a bit for "this is a star"."""

    STAR = 1 << 63

    def __init__(self, text: str) -> None:
        minute, hour, day, month, weekday = DESCRIPTORS.get(text, text).lower().split()
        self.minute, self.hour = self.mask(minute, 0, 59), self.mask(hour, 0, 23)
        self.day, self.month = self.mask(day, 1, 31), self.mask(month, 1, 12, MONTHS, 1)
        self.weekday = self.mask(weekday, 0, 6, WEEKDAYS, 0)

    def mask(self, text: str, low: int, high: int, names: list[str] | None = None, base: int = 0) -> int:
        found = 0
        for part in text.split(","):
            span, slash, step = part.partition("/")
            first, dash, last = span.partition("-")
            star = first in ("*", "?")
            number = lambda word: names.index(word) + base if names and word in names else int(word)  # noqa: E731
            begin = low if star else number(first)
            end = high if star or (slash and not dash) else number(last) if dash else begin
            for value in range(begin, end + 1, int(step or 1)):
                found |= 1 << value
            found |= self.STAR if star and int(step or 1) == 1 else 0
        return found

    def on(self, when: date) -> bool:
        in_month, in_week = self.day >> when.day & 1, self.weekday >> when.isoweekday() % 7 & 1
        star = (self.day | self.weekday) & self.STAR
        return bool(self.month >> when.month & 1 and (in_month & in_week if star else in_month | in_week))

    def at(self, hour: int, minute: int) -> bool:
        return bool(self.hour >> hour & 1 and self.minute >> minute & 1)


def expected(schedule: str, tz: str) -> Iterator[datetime]:
    if schedule.startswith("@every "):
        return (AFTER + number * timedelta(minutes=90) for number in range(1, 1000))
    parsed = GoCron(schedule)
    return wall_walk(parsed.on, parsed.at, tz, AFTER)


def test_the_next_50_fires_are_the_controllers_or_the_difference_is_reported() -> None:
    found = read_cronjobs(CORPUS, "UTC")
    assert len(found.jobs) >= 30
    assert not found.left_out
    differing, reported = set(), set()
    for job in found.jobs:
        fires = first(expected(job.schedule, job.tz), COUNT)
        compared = compare(job, AFTER, COUNT)
        assert list(compared.old) == fires, f"{job.id}: {job.schedule} in {job.tz}"
        if list(compared.new) != fires:
            differing.add(job.id)
        if compared.at_changes:
            reported.add(job.id)
        assert not compared.difference, job.id
    assert differing == {"nightly", "nightly-list"}
    assert reported == {"nightly", "nightly-list", "new-york-skipped", "new-york-repeated", "lord-howe"}


def test_what_differs_when_the_clock_changes_is_named() -> None:
    """Kubernetes skips the night without 02:30; Fencepost runs it when the gap ends."""
    [job] = [job for job in read_cronjobs(CORPUS, "UTC").jobs if job.id == "nightly"]
    found = compare(job, AFTER, COUNT)
    assert found.at_changes.only_new == (datetime(2026, 3, 29, 1, tzinfo=UTC),)
    assert found.at_changes.only_old == (datetime(2026, 10, 25, 1, 30, tzinfo=UTC),)


def test_what_a_cronjob_says_becomes_policies() -> None:
    jobs = {job.id: job for job in read_cronjobs(POLICIES, "UTC").jobs}
    assert set(jobs) == {"full", "allowed", "replaced"}
    assert jobs["full"].policies == {
        "overlap": "skip",
        "misfire": "skip",
        "misfire_after": 600,
        "timeout": 1800,
        "retry": {"attempts": 3, "first": 10, "cap": 360},
    }
    assert jobs["allowed"].policies == {"overlap": "allow(10)"}
    assert "Replace" in noted(jobs["replaced"])
    for word in ("parallelism", "containers", "TOKEN"):
        assert word in noted(jobs["full"])


def test_variables_in_commands_are_replaced_as_kubernetes_does() -> None:
    [job] = [job for job in read_cronjobs(POLICIES, "UTC").jobs if job.id == "full"]
    assert job.body == ShellCommand(
        ["/bin/report", "--region=ch", "$(HOME)", "$(ELSEWHERE)", "--base", "https://ch.example.org"],
        {"REGION": "ch", "URL": "https://ch.example.org"},
        "/srv/shop",
    )


def test_what_cannot_be_carried_over_has_a_reason_and_a_remedy() -> None:
    left_out = {entry.origin: entry for entry in read_cronjobs(POLICIES, "UTC").left_out}
    assert set(left_out) == {f"CronJob {name}" for name in ("suspended", "entry-point", "broken", "empty")}
    assert all(entry.why and entry.remedy for entry in left_out.values())
    assert "entry point" in left_out["CronJob entry-point"].why


@pytest.mark.parametrize(
    "change",
    [
        {"command": "work"},
        {"command": 1.5},
        {"command": ["a"], "args": "b"},
        {"command": [1]},
        {"command": [[]]},
    ],
)
def test_a_command_that_is_no_list_of_texts_is_left_out(change: dict[str, object]) -> None:
    pod = {"containers": [{"name": "a", **change}]}
    spec = {"schedule": "0 1 * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    [entry] = read_cronjobs(json.dumps({"kind": "CronJob", "spec": spec}), "UTC").left_out
    assert "list of texts" in entry.why


def test_kubectls_json_is_read_without_yaml() -> None:
    as_json = json.dumps({"kind": "List", "items": list(yaml.safe_load_all(CORPUS))})
    ids = [job.id for job in read_cronjobs(as_json, "UTC").jobs]
    assert ids == [job.id for job in read_cronjobs(CORPUS, "UTC").jobs]


@pytest.mark.parametrize(
    "text", ["kind: [", "{", "!!python/object/apply:os.system [echo]", "a: *nowhere", "[" * 5_000]
)
def test_a_file_that_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        read_cronjobs(text, "UTC")


def noted(job: Carried) -> str:
    return " ".join(str(note) for note in job.notes)
