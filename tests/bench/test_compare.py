"""When a commit counts as worse: `make bench ARGS="--compare REV"`."""

from __future__ import annotations

import math
import subprocess

import pytest
from bench.compare import ROOT, figures, verdict, verdicts, worktree


def test_a_figure_above_the_bound_in_every_round_is_worse():
    judged = verdict("CPU", [(100, 130), (100, 125), (200, 270)], 1.2)
    assert judged is not None
    assert judged.worse
    assert judged.ratio == pytest.approx(1.3)
    assert (judged.before, judged.after) == (100, 130)


@pytest.mark.parametrize(
    ("rounds", "why"),
    [
        ([(100, 119), (100, 118), (100, 117)], "below the bound"),
        ([(100, 101), (100, 900), (100, 99)], "one disturbed round"),
        ([(100, 150), (100, 160), (100, 98)], "the rounds do not agree on the direction"),
        ([(100, 60), (100, 70), (100, 65)], "it is better"),
        ([(100, 100)] * 3, "the same"),
    ],
)
def test_noise_does_not_decide(rounds, why):
    judged = verdict("CPU", rounds, 1.2)
    assert judged is not None
    assert not judged.worse, why


def test_a_machine_that_slows_down_meanwhile_changes_no_ratio():
    judged = verdict("CPU", [(100, 105), (300, 310), (900, 950)], 1.2)
    assert judged is not None
    assert judged.ratio == pytest.approx(1.05)
    assert not judged.worse


def test_a_difference_within_the_slack_is_no_change():
    rounds = [(1.0, 1.4), (1.0, 1.5), (1.1, 1.6)]
    within, beyond = verdict("late", rounds, 1.2, slack=1.0), verdict("late", rounds, 1.2, slack=0.3)
    assert within is not None
    assert beyond is not None
    assert (within.worse, beyond.worse) == (False, True)


def test_a_rate_that_no_longer_holds_is_worse():
    judged = verdict("late", [(8.0, math.inf), (9.0, math.inf), (8.5, 12.0)], 1.2, slack=5.0)
    assert judged is not None
    assert judged.worse
    assert verdict("late", [(math.inf, 8.0)] * 3, 1.2) is None, "it did not hold before: nothing to compare"
    assert verdict("late", [(math.nan, 8.0), (8.0, math.nan), (0.0, 8.0)], 1.2) is None


def results(p99: float, cpu: float, holds: bool = True) -> dict:
    rate = {"rate": 100, "p50_ms": 4.0, "p99_ms": p99, "cpu_us_per_fire": cpu, "server_us_per_fire": 0.0}
    return {
        "stores": {
            "sqlite": {"rates": [{**rate, "holds": holds, "due": 600, "started": 600 if holds else 9}]}
        }
    }


def test_the_figures_of_two_runs_are_judged_one_by_one():
    then, now = figures(results(8.0, 300)), figures(results(9.0, 450))
    assert then == {
        "sqlite 100/s late p50 ms": 4.0,
        "sqlite 100/s late p99 ms": 8.0,
        "sqlite 100/s CPU µs": 300,
    }
    judged = {each.name: each.worse for each in verdicts([(then, now)] * 3, 1.2)}
    assert judged == {
        "sqlite 100/s late p50 ms": False,
        "sqlite 100/s late p99 ms": False,
        "sqlite 100/s CPU µs": True,
    }
    failing = figures(results(80.0, 300, holds=False))
    assert {each.name for each in verdicts([(then, failing)] * 3, 1.2) if each.worse} == {
        "sqlite 100/s late p50 ms",
        "sqlite 100/s late p99 ms",
    }


def test_the_other_commit_is_a_worktree_that_is_gone_afterwards():
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("not a git repository")
    with worktree("HEAD") as folder:
        assert (folder / "src" / "fencepost" / "__init__.py").exists()
    assert not folder.exists()
    listed = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert str(folder) not in listed.stdout
    with pytest.raises(SystemExit, match="no-such-revision"), worktree("no-such-revision"):
        pass
