"""The real loops under faults, by seed. `make sim SEEDS=…` runs many more; `make sim SEED=n` shows one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.protocol.mutants import MUTANTS, seeds_to_notice
from tests.protocol.mutants.__main__ import main
from tests.protocol.sim import simulate


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
    "a_moved_job_stays",
    "another_applications_definition",
    "another_version_removed",
    "backlog_decided_half_planned",
    "bad_update_blocks_the_others",
    "cancel_forgotten_by_a_retry",
    "cancel_not_noted",
    "cancel_not_told",
    "catch_up_without_end",
    "chosen_by_one",
    "code_undoes_what_was_made_by_hand",
    "crashes_unbounded",
    "declared_dead_whatever_the_token",
    "drain_leaves_at_once",
    "expiry_by_observation_alone",
    "expiry_by_the_store_clock_alone",
    "fenced_runs_go_on",
    "final_states_change",
    "giving_back_counts",
    "innocent_runs_not_recorded",
    "kept_values_are_dropped",
    "late_replies_are_not_given_back",
    "lost_fires_run_again",
    "lost_retries_run_again",
    "lost_runs_go_on",
    "new_calendar_repeats_the_decided",
    "no_token_check",
    "no_trust_window",
    "not_declared_again",
    "old_calendar_owes_nothing",
    "past_moments_overtaken",
    "past_moments_run",
    "past_moments_vanish",
    "pause_ahead_cannot_be_ended",
    "pause_ignored_at_due_time",
    "pause_ignored_by_retries",
    "pause_ignored_by_what_waits",
    "plan_without_compare",
    "queue_without_end",
    "restarts_with_one_number_look_alike",
    "revision_ignored",
    "stale_leader_stays",
    "timeout_ignored",
    "tombstone_forgets_the_token",
    "trust_counted_from_the_reply",
    "unreadable_definitions_are_replaced",
    "unreadable_jobs_are_claimed",
    "what_is_asked_for_is_a_flip_back",
}
"""Mutants that are noticed after more than two seeds, in `make test-all`."""

RARE = {
    "a_second_pause_loses_the_end",
    "an_earlier_run_goes_on",
    "leaving_in_doubt_gives_back",
    "orphans_stay_planned",
    "queueing_is_no_decision",
    "settling_is_not_counted",
    "unknown_claims_are_kept",
    "unreadable_retries_run_again",
    "waiting_fires_ignore_a_lower_limit",
    "what_has_run_is_given_back",
}
"""Mutants that are noticed after more than a hundred seeds, in `make mutants` alone, which runs all."""

NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
    for name in sorted(MUTANTS.keys() - RARE)
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_the_simulator_notices_a_missing_rule(name: str) -> None:
    noticed = seeds_to_notice(name, seeds=100 if name in SLOW else 40)
    assert noticed is not None, f"{name} survived: there is a hole in the simulator"


def test_there_are_enough_mutants_here() -> None:
    assert len(MUTANTS.keys() - SLOW - RARE) >= 22
    assert len(MUTANTS.keys() - RARE) >= 57
    assert MUTANTS.keys() >= SLOW | RARE
