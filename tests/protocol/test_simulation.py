"""The real loops under faults, by seed. `make sim SEEDS=…` runs many more; `make sim SEED=n` shows one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.protocol.mutants import MUTANTS, seeds_to_notice
from tests.protocol.mutants.__main__ import main
from tests.protocol.sim import simulate

QUICK_SEEDS = 25
"""Of fifty; the others are for `make test-all`."""


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.slow] if first >= QUICK_SEEDS else [])
        for first in range(0, 50, 5)
    ],
)
def test_no_promise_is_broken(first: int) -> None:
    fires = 0
    for seed in range(first, first + 5):
        result = simulate(seed)
        assert not result.violations, f"seed {seed}, replay with: make sim SEED={seed}"
        assert result.faults, "a seed without faults shows nothing"
        fires += result.fires
    assert fires > 5 * 20


@pytest.mark.parametrize(
    ("seed", "focus"),
    [
        (61, ()),  # a token is given again after a loss that no replica could report
        (153, ()),  # a backfill lies ahead of a clock that was set back
        (
            174,
            ("engine",),
        ),  # data is lost a second time, after a person asked again for what the first loss had undone
        (232, ()),  # stopped and killed in the same moment
        (502, ()),  # a presence is written anew by a delayed heartbeat
        (516, ()),  # a queued fire is to be replaced, and the planner is behind
        (523, ("engine",)),  # a backfill goes on after a restart that has lost what it had run
        (559, ("engine",)),  # a job is removed between a worker's two questions at the start gate
        (573, ("engine",)),  # a clock is set back while a backfill is only partly added
        (629, ()),  # a replica lost sight of a run of an engine, while its job could not be read
        (1113, ()),  # a run asks for another attempt while its job cannot be read, and was removed
        (1123, ()),  # a job follows others, and its calendar from before still owes
        (1782, ()),  # a job is given a task that no replica has known for long
        (1855, ()),  # the end of a run is lost with the store's data, in an outage
        (2033, ("limits", "chains", "backfills")),  # the clock comes to the same time twice
        (3013, ("limits", "chains", "backfills")),  # one row has fires of parents and of a calendar
        (3162, ("limits", "chains", "backfills")),  # data is lost, and a parent's backfill is repeated
    ],
)
def test_what_once_failed(seed: int, focus: tuple[str, ...]) -> None:
    assert simulate(seed, focus=focus).violations == []


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
    "no_start_gate",
    "the_gate_is_not_heeded",
    "swept_after_one_gone",
    "heartbeats_of_workers_do_not_count",
    "random_refs",
    "sent_again_without_a_look",
    "a_run_belongs_to_its_replica",
    "nothing_is_adopted",
    "success_of_a_refused_delivery",
    "a_started_run_is_called_never_started",
    "a_delayed_beat_looks_like_a_loss",
    "a_moved_job_stays",
    "a_change_overwrites_another",
    "a_rule_waits_for_the_leader",
    "another_applications_definition",
    "another_version_removed",
    "backfill_doubles_what_succeeded",
    "backfill_ends_early",
    "backfill_without_limit",
    "cancelled_backfill_goes_on",
    "jitter_ignored",
    "later_is_now",
    "paused_backfill_goes_on",
    "skip_ignored",
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
    "doubtful_ends_are_counted",
    "drain_leaves_at_once",
    "expiry_by_observation_alone",
    "expiry_by_the_store_clock_alone",
    "fenced_runs_go_on",
    "children_are_forgotten",
    "children_do_not_wait_for_all",
    "children_follow_failures",
    "final_states_change",
    "freed_places_stay_idle",
    "giving_back_counts",
    "kept_values_are_dropped",
    "late_replies_are_not_given_back",
    "limits_forget_other_jobs",
    "limits_of_the_largest_size",
    "new_calendar_repeats_the_decided",
    "no_token_check",
    "no_trust_window",
    "not_declared_again",
    "old_calendar_owes_nothing",
    "past_moments_overtaken",
    "past_moments_run",
    "past_moments_vanish",
    "pause_ignored_at_due_time",
    "pause_ignored_by_retries",
    "pause_ignored_by_what_waits",
    "plan_without_compare",
    "queue_without_end",
    "rates_forget_starts",
    "restarts_with_one_number_look_alike",
    "replaced_runs_go_on",
    "replacing_beside_the_run",
    "replacing_in_order",
    "revision_ignored",
    "stale_leader_stays",
    "timeout_ignored",
    "tombstone_forgets_the_token",
    "trust_counted_from_the_reply",
    "unreadable_definitions_are_replaced",
    "unreadable_jobs_are_claimed",
    "what_is_asked_for_is_a_flip_back",
    "lowest_priority_first",
    "every_failure_is_told",
    "skipped_because_of_the_dead",
    "unknown_tasks_are_claimed",
    "marked_before_it_is_delivered",
    "latest_keeps_two",
    "flip_back",
    "orphaned_at_once",
    "what_has_run_is_given_back",
}
"""Mutants that take more than a few seconds to be noticed, in `make test-all`."""

RARE = {
    "a_heartbeat_makes_up_for_a_lost_step",
    "seen_meanwhile_is_forgotten",
    "unread_jobs_free_no_places",
    "innocent_runs_not_recorded",
    "pause_ahead_cannot_be_ended",
    "lost_retries_run_again",
    "lost_fires_run_again",
    "what_is_owed_is_never_paid",
    "lost_runs_go_on",
    "a_child_forgets_its_calendar",
    "failures_told_by_an_engine_are_repeated_without_end",
    "a_second_pause_loses_the_end",
    "an_earlier_run_goes_on",
    "forgotten_backfill_goes_on",
    "leaving_in_doubt_gives_back",
    "orphans_stay_planned",
    "queueing_is_no_decision",
    "settling_is_not_counted",
    "the_gate_trusts_a_store_that_came_up_anew",
    "unknown_claims_are_kept",
    "unreadable_retries_run_again",
    "waiting_fires_ignore_a_lower_limit",
}
"""Mutants that are noticed only after many seeds, in `make mutants` alone, which runs all."""

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
