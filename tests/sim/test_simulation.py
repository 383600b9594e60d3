"""The real loops under faults, by seed. `make sim SEEDS=…` runs many more; `make sim SEED=n` shows one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from fencepost.testing.mutants import MUTANTS, seeds_to_notice
from fencepost.testing.mutants.__main__ import main
from fencepost.testing.sim import simulate


@pytest.mark.parametrize("first", range(0, 50, 5))
def test_no_promise_is_broken(first: int) -> None:
    fires = 0
    for seed in range(first, first + 5):
        result = simulate(seed)
        assert not result.violations, f"seed {seed}, replay with: make sim SEED={seed}"
        assert result.faults, "a seed without faults shows nothing"
        fires += result.fires
    assert fires > 5 * 20


def test_every_mutant_has_its_lines() -> None:
    """Each must be in the source once. A rule that has moved is to be followed."""
    for mutant in MUTANTS.values():
        for edit in mutant.edits:
            spec = find_spec(edit.module)
            assert spec is not None
            assert spec.origin is not None
            assert Path(spec.origin).read_text().count(edit.before) == 1, f"{mutant.name}: {edit.before}"


def test_the_table_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--markdown", "--jobs", "1", "no_overlap_rule"]) == 0
    _, _, row = capsys.readouterr().out.splitlines()
    assert row.startswith(f"| {MUTANTS['no_overlap_rule'].rule} | 1 | S6: ")


SLOW = {
    "catch_up_without_end",
    "cancel_not_told",
    "crashes_unbounded",
    "flip_back",
    "pause_ignored_by_retries",
    "plan_without_compare",
    "cancel_forgotten_by_a_retry",
    "cancel_not_noted",
    "leaving_in_doubt_gives_back",
    "orphans_stay_planned",
    "queueing_is_no_decision",
    "lost_fires_run_again",
    "lost_runs_go_on",
    "pause_ahead_cannot_be_ended",
    "settling_is_not_counted",
    "unknown_claims_are_kept",
    "waiting_fires_ignore_a_lower_limit",
    "what_has_run_is_given_back",
}
"""Mutants that take more seeds than there is time for here. `make mutants` runs them all."""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - SLOW))
def test_the_simulator_notices_a_missing_rule(name: str) -> None:
    noticed = seeds_to_notice(name, seeds=40)
    assert noticed is not None, f"{name} survived: there is a hole in the simulator"


def test_there_are_enough_mutants_here() -> None:
    assert len(MUTANTS.keys() - SLOW) >= 35
    assert MUTANTS.keys() >= SLOW
