"""Mutants: the protocol with one rule taken out. The simulator must notice each of them.

    python -m tests.protocol.mutants             all, in parallel, as a table
    python -m tests.protocol.mutants NAME …      some

A mutant is a few lines of the source and what to put in their place. It is run on a copy of the package, loaded
anew with those lines replaced. One that survives shows a hole in the simulator.
"""

from __future__ import annotations

from tests.protocol.mutants.across import ACROSS
from tests.protocol.mutants.backfills import BACKFILLS
from tests.protocol.mutants.engines import ENGINES
from tests.protocol.mutants.loading import mutated
from tests.protocol.mutants.mutant import Mutant
from tests.protocol.mutants.replica import REPLICA
from tests.protocol.mutants.store import STORE

__all__ = ["MUTANTS", "SEEDS", "Mutant", "Noticed", "mutated", "seeds_to_notice"]

SEEDS = 300

MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant for mutant in (*STORE, *ACROSS, *BACKFILLS, *REPLICA, *ENGINES)
}


Noticed = tuple[int, str] | None
"""How many seeds it took, and the violation; None: it survived them all."""


def seeds_to_notice(name: str, seeds: int = SEEDS, first: int = 0) -> Noticed:
    mutant = MUTANTS[name]
    with mutated(mutant) as simulate:
        for seed in range(first, first + seeds):
            try:
                violations = simulate(seed, focus=mutant.focus).violations
            except Exception as error:  # the store itself stumbled over it
                violations = [f"code: {error!r}"]
            if violations:
                return seed - first + 1, violations[0]
    return None
