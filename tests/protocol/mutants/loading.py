"""Loads Fencepost a second time, beside the first, with some lines of it replaced."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from tests.protocol.mutants.mutant import Edit, Mutant

PACKAGES = ("fencepost", "tests.protocol")
"""The second is what drives the first: it must see the copy."""


@contextmanager
def mutated(mutant: Mutant) -> Iterator[Callable[..., Any]]:
    """The `simulate` of a package in which the mutant's lines are replaced. Ours is put back afterwards."""
    ours = _taken_out()
    finder = _Finder(mutant)
    finders = list(sys.meta_path)
    sys.meta_path.insert(0, finder)
    try:
        simulate: Callable[..., Any] = importlib.import_module("tests.protocol.sim").simulate
        finder.check()
        yield simulate
    finally:
        sys.meta_path[:] = finders
        _taken_out()
        sys.modules.update(ours)


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if f"{name}.".startswith(tuple(f"{each}." for each in PACKAGES))]
    return {name: sys.modules.pop(name) for name in names}


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._waiting = {edit.module for edit in mutant.edits}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        edits = [edit for edit in self._mutant.edits if edit.module == fullname]
        spec = PathFinder.find_spec(fullname, path, target) if edits else None
        if spec is not None and spec.origin is not None:
            self._waiting.discard(fullname)
            spec.loader = _Loader(fullname, spec.origin, self._mutant.name, edits)
        return spec

    def check(self) -> None:
        if self._waiting:
            raise LookupError(f"{self._mutant.name}: the simulator does not use {sorted(self._waiting)}")


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutant: str, edits: Sequence[Edit]) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        """Never from the cache, nor into it."""
        source = self.get_data(self.path).decode()
        for edit in self._edits:
            if source.count(edit.before) != 1:
                raise LookupError(
                    f"{self._mutant}: these lines must be in {edit.module} once. If the rule has moved, follow it:\n"
                    f"{edit.before}"
                )
            source = source.replace(edit.before, edit.after)
        return self.source_to_code(source.encode(), self.path)
