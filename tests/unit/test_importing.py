"""A target that starts its scheduler while it is imported is refused, and nothing has started."""

# mypy: no-check-untyped-defs

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from fencepost import Scheduler, every
from fencepost.cli import outcome
from fencepost.cli.target import load
from fencepost.runs.importing import StartedWhileImported
from tests.unit.apps.waiting import eventually

APP = """\
import asyncio
import threading
from fencepost import Scheduler, every

scheduler = Scheduler("sqlite:///jobs.db", drain_timeout=1)

@scheduler.job(every(seconds=0.05))
def tick():
    open("ticked", "w").close()

async def begin():
    async with scheduler:
        await asyncio.sleep(0.5)

"""
LINE = len(APP.splitlines()) + 1
WAYS = {
    "run": "scheduler.run(seconds=3)",
    "start": "asyncio.run(begin())",
    "caught": "try:\n    asyncio.run(begin())\nexcept Exception:\n    pass",
    "thread": "t = threading.Thread(target=lambda: asyncio.run(begin()))\nt.start()\nt.join()",
}
COMMANDS = (
    ["run", "{target}", "--seconds", "0"],
    ["serve", "{target}", "--port", "0"],
    ["status", "{target}"],
    ["jobs", "{target}"],
    ["jobs", "rm", "{target}", "tick"],
    ["fires", "{target}"],
    ["show", "{target}", "tick@2026-11-15T12:00:00.000000Z"],
    ["why", "{target}", "tick", "03:00"],
    ["trigger", "{target}", "tick"],
    ["trigger", "{target}", "tick", "--here"],
    ["cancel", "{target}", "tick@2026-11-15T12:00:00.000000Z"],
    ["retry", "{target}", "tick@2026-11-15T12:00:00.000000Z"],
    ["pause", "{target}", "tick"],
    ["resume", "{target}", "tick"],
    ["preview", "{target}", "tick"],
    ["audit", "{target}"],
    ["doctor", "{target}"],
)


@pytest.fixture
def write(tmp_path, monkeypatch, request):
    """Writes the app, with a line more at its end, under a name of its own; gives its target."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"starts_{abs(hash(request.node.nodeid))}"

    def write(line: str) -> str:
        (tmp_path / f"{name}.py").write_text(APP + line + "\n")
        return f"{name}:scheduler"

    yield write
    sys.modules.pop(name, None)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_it_with_the_remedy(write, tmp_path, capsys, command):
    target = write(WAYS["run"])
    assert outcome([word.format(target=target) for word in command]) == 78
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        f"fencepost: {target.split(':')[0]}.py, line {LINE}, starts the scheduler while it is imported: "
        'move that line below `if __name__ == "__main__":`, so that `python` runs it and an import does not\n'
    )
    assert [each.suffix for each in tmp_path.iterdir() if each.is_file()] == [".py"]  # no store was made


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("way", WAYS)
def test_however_it_is_started(write, tmp_path, way):
    with pytest.raises(StartedWhileImported, match='if __name__ == "__main__":'):
        load(write(WAYS[way]))
    assert not (tmp_path / "jobs.db").exists()


def test_with_the_guard_line_it_is_loaded_and_can_start_afterwards(write):
    scheduler = load(write(f'if __name__ == "__main__":\n    {WAYS["run"]}'))
    scheduler.run(seconds=0)


@pytest.mark.cluster
async def test_a_body_in_a_process_does_not_start_the_scheduler_of_its_module(write, tmp_path):
    """The module of a script that lacks the line is imported by the process that runs one of its functions."""
    module = write(WAYS["run"]).split(":")[0]
    scheduler = Scheduler("memory://")
    scheduler.job(every(days=300), id="apart", executor="process")(_named(module, "tick"))
    async with scheduler:
        handle = await scheduler.trigger("apart")
        fire = await handle.wait(timeout=60)
    assert fire.state == "failed"
    assert "starts the scheduler while it is imported" in fire.error
    await eventually(lambda: not (tmp_path / "jobs.db").exists())


def _named(module, name):
    def function() -> None: ...

    function.__module__, function.__qualname__ = module, name
    return function


def test_the_first_program_of_the_readme_can_be_a_target():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    program = next(block for block in readme.split("```python\n")[1:] if "scheduler.run()" in block)
    assert isinstance(ast.parse(program.split("```")[0]).body[-1], ast.If)
