"""Mutants: the protocol with one rule taken out. The simulator must notice each of them.

    python -m fencepost.testing.mutants             all, as a table
    python -m fencepost.testing.mutants NAME …      some

A mutant that survives shows a hole in the simulator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from fencepost.clock import Moment
from fencepost.model import Overlap, ReplicaRecord, State
from fencepost.replica import Replica
from fencepost.store import operations as operations_module
from fencepost.store.base import Claimed, Suspect, Update
from fencepost.store.state import StoreState
from fencepost.testing.sim import simulate
from fencepost.worker import OpenAttempt, Worker

SEEDS = 300

Patch = tuple[Any, str, Any]
MUTANTS: dict[str, Callable[[], list[Patch]]] = {}


def mutant(make: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
    MUTANTS[make.__name__] = make
    return make


@contextmanager
def mutated(name: str) -> Iterator[None]:
    patches = MUTANTS[name]()
    originals = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in patches]
    for owner, attribute, replacement in patches:
        setattr(owner, attribute, replacement)
    try:
        yield
    finally:
        for owner, attribute, original in originals:
            setattr(owner, attribute, original)


def seeds_to_notice(name: str, seeds: int = SEEDS) -> tuple[int, str] | None:
    """How many seeds it took, and the violation; None: it survived them all."""
    with mutated(name):
        for seed in range(seeds):
            violations = simulate(seed).violations
            if violations:
                return seed + 1, violations[0]
    return None


# --- the rules, each taken out ----------------------------------------------------------------------


@mutant
def no_term_check() -> list[Patch]:
    """Whoever believes to lead, leads."""

    def leads(self: StoreState, replica: str, term: int | None) -> bool:
        return term is not None

    return [(StoreState, "_leads", leads)]


@mutant
def no_token_check_on_settle() -> list[Patch]:
    original = StoreState._update

    def update(self: StoreState, at: Moment, update: Update) -> bool:
        fire = self.fires.get(update.key)
        if fire is not None and fire.state is State.RUNNING and fire.token > update.token:
            update = replace(update, token=fire.token)
        return original(self, at, update)

    return [(StoreState, "_update", update)]


@mutant
def trust_counted_from_the_reply() -> list[Patch]:
    original = Worker._take

    def take(self: Worker, attempt: OpenAttempt, reply: Claimed) -> None:
        original(self, replace(attempt, sent=self.replica.clock.steady()), reply)

    return [(Worker, "_take", take)]


@mutant
def late_replies_are_not_given_back() -> list[Patch]:
    def keep(self: Replica, claims: Sequence[tuple[str, int]]) -> None:
        return None

    return [(Replica, "return_unstarted", keep)]


@mutant
def expiry_by_the_store_clock_alone() -> list[Patch]:
    def is_dead(at: Moment, replica: ReplicaRecord, suspect: Suspect) -> bool:
        return replica.expires <= at.steady

    return [(operations_module, "is_dead", is_dead)]


@mutant
def expiry_by_observation_alone() -> list[Patch]:
    def is_dead(at: Moment, replica: ReplicaRecord, suspect: Suspect) -> bool:
        return suspect.renewals == replica.renewals and suspect.seconds >= 1.5 * replica.heartbeat

    return [(operations_module, "is_dead", is_dead)]


@mutant
def no_withdrawal_on_a_changed_trigger() -> list[Patch]:
    def keep(self: StoreState, job_id: str, now: datetime) -> None:
        return None

    return [(StoreState, "withdraw_planned", keep)]


@mutant
def no_overlap_rule() -> list[Patch]:
    return [(Overlap, "at_once", property(lambda self: 1000))]


def main(names: Sequence[str]) -> int:
    survived = 0
    print(f"{'mutant':42} {'noticed after':>14}  by")
    for name in names or MUTANTS:
        noticed = seeds_to_notice(name)
        if noticed is None:
            survived += 1
            print(f"{name:42} {'SURVIVED':>14}")
        else:
            count, violation = noticed
            print(f"{name:42} {f'{count} seeds':>14}  {violation[:100]}", flush=True)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
