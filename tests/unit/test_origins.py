"""Where definitions come from, and which of them holds."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fencepost import Pipeline, Scheduler, every
from fencepost.insight.doctor.jobs import abandoned, jobs, undecided
from fencepost.insight.views.overview import overview
from fencepost.model import Origin
from fencepost.replica.origins import _origin_of_module, _project_in, origin_of
from fencepost.runs.bodies.command import Command
from fencepost.store.memory import MemoryStore

Load = Callable[[Path, str], ModuleType]


@pytest.fixture
def load() -> Iterator[Load]:
    """Imports a file with a function `cleanup` under a name."""
    loaded: list[str] = []

    def load(path: Path, name: str) -> ModuleType:
        _origin_of_module.cache_clear()
        _project_in.cache_clear()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def cleanup(): ...\n")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        loaded.append(name)
        return module

    yield load
    for name in loaded:
        sys.modules.pop(name, None)
    _origin_of_module.cache_clear()


def origin(function: Callable[..., Any], application: str | None = None) -> Origin:
    found = origin_of(function, application)
    assert found is not None
    return found


def test_code_outside_of_a_project_is_known_by_its_file(load: Load, tmp_path: Path) -> None:
    shop, billing = (load(tmp_path / name / "app.py", f"{name}_app") for name in ("shop", "billing"))
    assert origin(shop.cleanup).key == str(tmp_path / "shop" / "app.py") == str(origin(shop.cleanup))
    assert origin(shop.cleanup).differs_from(origin(billing.cleanup))
    assert not origin(shop.cleanup).differs_from(origin(functools.partial(shop.cleanup)))


def test_code_of_a_project_is_known_by_its_name_wherever_it_lies(load: Load, tmp_path: Path) -> None:
    keys = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "pyproject.toml").write_text('[project]\nname = "shop"\n')
        module = load(tmp_path / place / "src" / "jobs.py", "shop_jobs")
        keys.append(origin(module.cleanup).key)
        assert str(origin(module.cleanup)) == "shop_jobs of shop"
    assert keys == ["shop:src/jobs.py"] * 2


def test_installed_code_is_known_by_its_distribution() -> None:
    import click.core

    assert origin(click.core.Context).key == "click:click.core"


def test_an_application_that_has_a_name_is_known_by_it(load: Load, tmp_path: Path) -> None:
    module = load(tmp_path / "app.py", "named_app")
    assert origin(module.cleanup, "shop").key == "shop"


def test_a_pipeline_belongs_where_its_phases_are() -> None:
    pipeline = Pipeline("sync")

    @pipeline.phase("load")
    def phase() -> None: ...

    assert origin(pipeline) == origin(test_a_pipeline_belongs_where_its_phases_are)


def test_what_has_no_file_has_no_origin() -> None:
    def cleanup() -> None: ...

    cleanup.__module__ = "an interactive session"
    assert origin_of(cleanup) is None


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (Command.of(["dump", "--password", "it's secret", "-v"]), "dump --password *** -v"),
        (Command.of(["curl", "https://ann:hunter2@host/"]), "curl https://ann:***@host/"),
        (Command.of("dump --api-key abcdef | gzip", shell=True), "dump --api-key *** | gzip"),
        (Command.of(["dump", "x" * 1000]), f"dump {'x' * 495}"),
    ],
)
def test_a_command_is_kept_without_its_secrets(command: Command, shown: str) -> None:
    assert command.origin.command == shown


def test_commands_differ_by_what_they_run_not_by_where_their_file_is_or_their_secrets() -> None:
    def at(folder: str, *words: str, cwd: str = "", **env: str) -> Origin:
        command = Command.of(words, cwd=f"{folder}/{cwd}", env=env, file=f"{folder}/fencepost.toml")
        return command.origin

    one = at("/etc/a", "dump", "--token", "abcdef", API_KEY="letmein")
    assert not one.differs_from(at("/etc/b", "dump", "--token", "ghijkl", API_KEY="another"))
    assert one.differs_from(at("/etc/a", "dump", "--all"))
    assert one.differs_from(at("/etc/a", "dump", "--token", "abcdef", cwd="data", API_KEY="letmein"))
    assert one.differs_from(at("/etc/a", "dump", "--token", "abcdef", API_KEY="letmein", LEVEL="9"))


# --- what was made by hand ----------------------------------------------------------------------------------------


def application(store: MemoryStore, minutes: int = 60) -> Scheduler:
    scheduler = Scheduler(store=store, heartbeat="50ms", leader_ttl="1s", run_ttl="1s")

    @scheduler.job(every(minutes=minutes), id="report")
    def report() -> None: ...

    return scheduler


async def test_the_next_start_does_not_undo_what_was_made_by_hand(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    async with application(store) as first:
        await first.add("report", every(minutes=5), id="report", replace=True)
    caplog.clear()
    async with application(store) as second:
        [job] = await second.find_jobs()
        assert (job.schedule, job.source) == ("every 5 minutes", "api")
        assert job.states == ("idle", "by hand")
        [line] = [each.getMessage() for each in caplog.records if "job.refused" in each.getMessage()]
        assert "report: made by hand" in line
        status, now = await overview(store, "")
        fires_to_decide, left_behind = await undecided(store, now), await abandoned(store)
        findings = list(jobs(status, await store.jobs(), fires_to_decide, left_behind, now))
        [found] = [each for each in findings if "made by hand" in each.what]
        assert (found.level, "test_origins" in found.what) == ("warning", True)
        assert "jobs rm report" in (found.remedy or "")


async def test_replicas_that_are_up_say_that_what_was_made_by_hand_holds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with application(MemoryStore()) as scheduler:
        await scheduler.add("report", every(minutes=5), id="report", replace=True)
        async with asyncio.timeout(60):
            while "report: made by hand" not in caplog.text:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)  # several looks
    assert caplog.text.count("report: made by hand") == 1


async def test_code_that_declares_the_same_holds_again(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    async with application(store) as first:
        await first.add("report", every(minutes=5), id="report", replace=True)
    async with application(store, minutes=5) as second:
        assert [(job.source, job.states) for job in await second.find_jobs()] == [("code", ("idle",))]
    async with application(store, minutes=7) as third:
        assert [job.schedule for job in await third.find_jobs()] == ["every 7 minutes"]


async def test_removing_it_leads_back_to_the_code(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    async with application(store) as first:
        await first.add("report", every(minutes=5), id="report", replace=True)
        await first.remove("report")
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        async with application(store) as second:
            assert [(job.schedule, job.source) for job in await second.find_jobs()] == [
                ("every hour", "code")
            ]
        assert "job.refused" not in caplog.text
