"""The real loops under faults, by seed. `make sim SEEDS=…` runs many more; `make sim SEED=n` shows one."""

from __future__ import annotations

import pytest

from fencepost.testing.mutants import MUTANTS, SEEDS, seeds_to_notice
from fencepost.testing.sim import simulate


@pytest.mark.parametrize("first", range(0, 50, 5))
def test_no_promise_is_broken(first: int) -> None:
    for seed in range(first, first + 5):
        result = simulate(seed)
        assert not result.violations, f"seed {seed}, replay with: make sim SEED={seed}"
        assert result.fires > 10
        assert result.faults, "a seed without faults shows nothing"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulator_notices_a_missing_rule(name: str) -> None:
    noticed = seeds_to_notice(name)
    assert noticed is not None, f"{name} survived {SEEDS} seeds: there is a hole in the simulator"
