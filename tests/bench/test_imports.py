"""Everything that is run by hand can be loaded: `make bench`, `make soak`, `make proof`."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("bench", "soak", "proof")
    for path in (ROOT / folder).rglob("*.py")
    if "apps" not in path.parts  # those are run in environments of their own
)


@pytest.mark.parametrize("module", MODULES)
def test_it_can_be_loaded(module: str) -> None:
    assert importlib.import_module(module).__name__ == module
