"""docs/architecture.md against the code: every name in its glossary and in its walk through the source exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "fencepost"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
LONGEST_WALK = 40


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def found(name: str) -> Any:
    """`store.base.Store.evidence`: the module, the class, the method."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(f"fencepost.{'.'.join(parts[:length])}")
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            thing = getattr(thing, part)
        return thing
    raise AssertionError(f"there is no {name}")


def test_every_word_of_the_glossary_is_in_the_code() -> None:
    rows = [line.split("|")[1:-1] for line in section("Words").splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    for word, meaning, where in rows:
        names = re.findall(r"`([\w.]+)`", where)
        assert all((word.strip(), meaning.strip(), names)), word
        for name in names:
            assert found(name) is not None


def test_the_walk_is_short_and_true() -> None:
    walk = section("A walk through the source")
    assert len(walk.strip().splitlines()) <= LONGEST_WALK
    for line in re.findall(r"(?s)\d\. (.*?)(?=\n\d\. |\n\n|\Z)", walk):
        files = [SOURCE / name for name in re.findall(r"`([\w/]+\.(?:py|sql|lua))`", line)]
        assert files, line
        for file in files:
            assert file.is_file(), f"{file}: {line}"
        text = "".join(file.read_text() for file in files)
        for named in re.findall(r"`((?:[A-Z]\w*\.)?[a-z_]+)`[,:]", line.partition(":")[0] + ":"):
            kind, _, function = named.rpartition(".")
            assert re.search(rf"\bdef {function}\b", text), f"no {named} in {line}"
            assert not kind or re.search(rf"\bclass {kind}\b", text), f"no {kind} in {line}"
