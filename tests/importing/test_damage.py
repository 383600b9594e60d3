"""Damaged files: every reader either refuses the file, leaves an entry out, or makes a job that loads."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.cli.migrate import apscheduler, celery
from fencepost.cli.migrate.compare import compare
from fencepost.cli.migrate.crontab import read_crontab
from fencepost.cli.migrate.django_celery_beat import read_dump
from fencepost.cli.migrate.kubernetes import read_cronjobs
from fencepost.cli.migrate.systemd import read_timers
from fencepost.cli.migrate.values import Imported
from fencepost.cli.migrate.write import in_python, in_toml
from fencepost.errors import FencepostError
from fencepost.scheduler.jobfile import scheduler_from

CORPUS = Path(__file__).parent / "corpus"
AFTER = datetime(2026, 3, 20, 10, tzinfo=UTC)
LETTERS = "0123456789*/-,~?LW#@%$\"'\\ \t\n[]{}()=:.abcMONjané\x00\x7f\u2028"
VALUES = [None, True, -1, 0, 1.5, "", "x", [], {}, [None], {"a": 1}, "$(A)", 10**30, float("inf"), "\ud800"]
SERVICE = '[Service]\nExecStart=-/bin/x ${A} "b c" %% $$\nEnvironment=A=1\nTimeoutStartSec=5m\n'


class Damage:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self, text: str) -> str:
        letters = list(text)
        for _ in range(self.random.randint(1, 3)):
            place = self.random.randrange(len(letters) + 1)
            letters[place : place + self.random.randint(0, 1)] = self.random.choice(["", *LETTERS])
        return "".join(letters)

    def tree(self, value: Any) -> str:
        value = deepcopy(value)
        for holder, key in self.random.sample(list(_places(value)), 2):
            holder[key] = deepcopy(self.random.choice(VALUES))
        return json.dumps(value)

    def chosen(self, values: list[Any]) -> Any:
        return self.random.choice(values)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


@cache
def trees() -> tuple[list[Any], list[Any]]:
    cronjobs = [
        *yaml.safe_load_all((CORPUS / "cronjobs.yaml").read_text()),
        *yaml.safe_load((CORPUS / "policies.yaml").read_text())["items"],
    ]
    return cronjobs, json.loads((CORPUS / "beat_tables.json").read_text())


@cache
def lines(name: str, having: str = "") -> list[str]:
    text = (CORPUS / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#") and having in line]


def readings(damage: Damage) -> dict[str, Callable[[], Imported]]:
    cronjobs, dump = trees()
    line = damage.text(damage.chosen(lines("crontab")))
    timer = damage.text(f"[Timer]\nOnCalendar={damage.chosen(lines('oncalendar'))}\nOnUnitActiveSec=5min")
    entry = damage.text(damage.chosen(lines("beat.py", '"schedule"')))
    call = damage.text(damage.chosen(lines("jobs.py", "add_job")))
    return {
        line: lambda: read_crontab(line, "UTC"),
        timer: lambda: read_timers({"a.timer": timer, "a.service": damage.text(SERVICE)}, "UTC"),
        entry: lambda: celery.read_source(f"beat_schedule = {{\n{entry}\n}}", None, None),
        call: lambda: apscheduler.read_source(f"def work(): pass\n{call}", "m", "UTC"),
        "a CronJob": lambda: read_cronjobs(damage.tree(damage.chosen(cronjobs)), "UTC"),
        "a dump": lambda: read_dump(damage.tree(dump), None, "a:b"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_are_left_out_or_load(seed: int, tmp_path: Path) -> None:
    for number in range(150):
        damage = Damage(seed * 1000 + number)
        for source, read in readings(damage).items():
            try:
                found = read()
                code, table = in_python(found, "test"), in_toml(found, "test")
            except FencepostError:
                continue
            assert all(entry.why and entry.remedy for entry in found.left_out), source
            for job in found.jobs:
                compare(job, AFTER, 20)
            compile(code, "imported.py", "exec")
            assert list(tomllib.loads(table).get("jobs", {})) == [job.id for job in found.jobs], source
            if found.jobs:
                (tmp_path / "fencepost.toml").write_text(table, encoding="utf-8")
                scheduler_from(tmp_path / "fencepost.toml")
