"""What a mutant is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines of a module that occur in it exactly once, and what to put in their place."""

    module: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    rule: str
    """The rule that is taken out."""
    edits: Sequence[Edit]


def mutant(name: str, rule: str, module: str, before: str, after: str, *more: Edit) -> Mutant:
    return Mutant(name, rule, (Edit(module, before, after), *more))
