"""The first steps of docs/django.md, typed as they are shown, in a fresh virtual environment."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "django.md"
INSTALL = 'pip install "fencepost[django]"'
RUN = "python manage.py fencepost run"
CLOSED = re.compile(r"polls due by (.+) are closed")

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(400)]


def blocks(*sections: str) -> Iterator[tuple[str, str]]:
    """The blocks of these sections: what they are written in, and their text."""
    for section in GUIDE.read_text().split("\n## "):
        if section.partition("\n")[0] in sections:
            yield from re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


class Reader:
    """Somebody who follows the guide."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("FENCEPOST_", "PYTHON"))
        }
        self.env = {**clean, "PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
        self.replicas: list[subprocess.Popen[str]] = []

    def write(self, text: str) -> None:
        """Into the file that the first line names; behind what is there."""
        name, _, code = text.removeprefix("# ").partition("\n")
        with (self.folder / name).open("a") as file:
            file.write(code)

    def type(self, line: str) -> str:
        if line == RUN:
            self.replicas += [self._start(shlex.split(line)) for _ in range(2)]
            self.wait_for_closings()
            return ""
        if line == INSTALL:
            line = f"pip install -q -c {ROOT / 'constraints-dev.txt'} '{ROOT}[django]'"
        done = subprocess.run(
            shlex.split(line), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def wait_for_closings(self) -> None:
        deadline = time.monotonic() + 60
        while len(self.closings()) < 3:
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.3)

    def closings(self) -> Counter[str]:
        return Counter(CLOSED.findall(self.said()))

    def said(self) -> str:
        return "".join(log.read_text() for log in self.folder.glob("*.log"))

    def _start(self, words: list[str]) -> subprocess.Popen[str]:
        with (self.folder / f"{len(list(self.folder.glob('*.log')))}.log").open("w") as log:
            return subprocess.Popen(words, cwd=self.folder, env=self.env, stdout=log, stderr=log, text=True)

    def leave(self) -> None:
        for replica in self.replicas:
            replica.terminate()
        for replica in self.replicas:
            assert replica.wait(60) == 0


def test_from_nothing(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    said: dict[str, str] = {}
    try:
        for language, text in blocks("From nothing", "Tests"):
            if language == "py":
                reader.write(text)
            else:
                said |= {line: reader.type(line) for line in text.splitlines()}
        reader.type("python manage.py test")
    finally:
        reader.leave()
    assert reader.replicas, "the guide starts replicas"
    assert set(reader.closings().values()) == {1}, "each fire once, on both"
    assert "close_old_polls" in said["python manage.py fencepost status"]
    assert said["python manage.py fencepost why close_old_polls"].startswith("close_old_polls, the fire of")
    assert "Every fire that was due is accounted for once" in said["python manage.py fencepost audit"]
