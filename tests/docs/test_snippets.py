"""The documentation's Python runs as shown.

Every block fenced as python is run by itself in an empty folder, and each test function it defines is called
afterwards. A block whose first line is `# not run` is only compiled.
"""

from __future__ import annotations

import inspect
import logging
import os
import runpy
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = "```"
NOT_RUN = "# not run"
FEWEST = 20
"""If fewer are found, the search is broken, not the documentation short."""


class Snippet(NamedTuple):
    page: str
    line: int
    code: str

    @property
    def placed(self) -> str:
        """The code at the lines it has on its page, so that a traceback points there."""
        return "\n" * (self.line - 1) + self.code


def snippets_of(text: str, page: str) -> Iterator[Snippet]:
    block: list[str] | None = None
    begun, margin = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        marker = line.strip()
        if block is None and marker.startswith(FENCE):
            margin = line[: len(line) - len(line.lstrip())]
            block, begun, language = [], number + 1, marker.removeprefix(FENCE).strip()
        elif block is not None and marker == FENCE:
            if language == "python":
                yield Snippet(page, begun, textwrap.dedent("\n".join(block)) + "\n")
            block = None
        elif block is not None:
            block.append(line.removeprefix(margin))
    assert block is None, f"{page}: the block that begins at line {begun} has no end"


SNIPPETS = [
    snippet
    for path in PAGES
    for snippet in snippets_of(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: f"{snippet.page}:{snippet.line}")
def test_it_runs_as_shown(
    snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compile(snippet.placed, snippet.page, "exec")
    if snippet.code.startswith(NOT_RUN):
        return
    for name in list(os.environ):
        if name.startswith(("FENCEPOST_", "KUBERNETES_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    caplog.set_level(logging.CRITICAL)
    file = tmp_path / "snippet.py"
    file.write_text(snippet.placed, encoding="utf-8")
    names = runpy.run_path(str(file), run_name="snippet")
    for name, value in names.items():
        if name.startswith("test_") and inspect.isfunction(value):
            value()


def test_there_are_snippets() -> None:
    assert len(SNIPPETS) >= FEWEST
    skipped = [snippet for snippet in SNIPPETS if snippet.code.startswith(NOT_RUN)]
    assert len(skipped) <= len(SNIPPETS) // 10
