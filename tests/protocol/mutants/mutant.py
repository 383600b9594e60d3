"""What a mutant is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


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
    focus: Sequence[str] = ()
    """What seeds must have for the rule to matter: they are simulated with it (`sim/focus.py`)."""


def mutant(
    name: str, rule: str, module: str, before: str, after: str, *more: Edit, focus: Sequence[str] = ()
) -> Mutant:
    return Mutant(name, rule, (Edit(module, before, after), *more), focus)


def focused(focus: str, *mutants: Mutant) -> tuple[Mutant, ...]:
    return tuple(replace(each, focus=(focus,)) for each in mutants)
