"""The tutorial's commands, as they stand there, in a fresh virtual environment with the built wheel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from fencepost.settings import Settings
from tests.deploy.wheels import build_wheel
from tests.web.serving import a_port

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STAYS = ("fencepost run", "fencepost serve")
"""Commands that go on until they are stopped."""
PATIENCE = 240.0
"""Seconds for each command: on a busy machine an installation takes minutes."""

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1_200)]


class Newcomer:
    """Types what the page says, in one folder, with one environment."""

    def __init__(self, folder: Path, wheel: Path, port: int) -> None:
        """`port`: in place of the default one, which a test beside this one may use, such as that of the demo."""
        self.folder = folder
        (folder / "constraints.txt").write_text(f"fencepost=={wheel.name.split('-')[1]}\n")
        self._environment = {name: value for name, value in os.environ.items() if "FENCEPOST" not in name}
        self._environment["PIP_CONSTRAINT"] = str(folder / "constraints.txt")
        self._environment["PIP_FIND_LINKS"] = str(wheel.parent)
        self._environment["FENCEPOST_PORT"] = str(port)
        self._environment["PATH"] = f"{folder}/.venv/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.staying: list[subprocess.Popen[bytes]] = []

    def types(self, command: str) -> str:
        if command.startswith(STAYS):
            with (self.folder / f"output-{len(self.staying)}").open("wb") as output:
                self.staying.append(
                    subprocess.Popen(
                        command.split(), cwd=self.folder, env=self._environment, stdout=output, stderr=output
                    )
                )
            return ""
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def said(self) -> str:
        """By the last command that stays."""
        text = (self.folder / f"output-{len(self.staying) - 1}").read_text()
        assert self.staying[-1].poll() is None, f"it has ended: {text}"
        return text

    def stop_all(self) -> None:
        for process in self.staying:
            process.send_signal(signal.SIGTERM)
        for process in self.staying:
            process.wait(PATIENCE)
        self.staying.clear()


def eventually(condition: Callable[[], bool], what: str) -> None:
    until = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < until, what
        sleep(0.2)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_its_commands_run_as_written(tmp_path: Path, wheel: Path) -> None:
    with a_port() as port:
        follow(Newcomer(tmp_path, wheel, port), tmp_path, f"http://127.0.0.1:{port};")


def test_it_names_the_address_of_the_service() -> None:
    assert f"Open http://127.0.0.1:{Settings().port}:" in TUTORIAL


def follow(newcomer: Newcomer, folder: Path, address: str) -> None:
    app, answers = folder / "app.py", {}
    try:
        for language, text in BLOCK.findall(TUTORIAL):
            if language == "python":
                if "part of app.py" in text:
                    main = 'if __name__ == "__main__"'
                    app.write_text(app.read_text().replace(main, f"{text}\n\n{main}"))
                    newcomer.stop_all()
                    newcomer.types("fencepost run app:scheduler")
                else:
                    assert app.read_text().strip() == text.partition("\n")[2].strip()
                continue
            for command in text.strip().splitlines():
                if command.startswith("fencepost trigger"):
                    eventually(lambda: "fetch" in newcomer.types("fencepost jobs"), "fetch is declared")
                answers[command] = newcomer.types(command)
                if command.startswith("fencepost run"):
                    newcomer.types(command)  # "in both terminals"
                    eventually((folder / "fencepost.db").exists, "the store is there")
                    eventually(lambda: "succeeded" in newcomer.types("fencepost fires"), "hello has run")
        assert len(answers) >= 10
        assert "succeeded" in answers["fencepost fires"]
        assert '"fetched": 17' in answers["fencepost show fetch"]
        eventually(lambda: address in newcomer.said(), "the service says where it is")
    finally:
        newcomer.stop_all()
