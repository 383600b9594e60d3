"""The benchmark of peers itself, for some seconds: Fencepost, and a peer of each environment that is installed."""

from __future__ import annotations

import pytest
from bench.peers.environment import installed
from bench.peers.measure import Plan, chosen, measure

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

PLAN = Plan(seconds=3.0, search=False, calm=8.0, patience=60.0)
"""Patient: this is to see that each is measured, not how fast it is."""


@pytest.mark.parametrize(
    "name", ["fencepost-valkey", "fencepost-postgres", "pyncette-valkey", "apscheduler4"]
)
@pytest.mark.timeout(300)
def test_a_contender_is_measured_and_survives_a_kill(name):
    (contender,) = chosen([name])
    if not installed(contender.environment):
        pytest.skip(f"python -m bench.peers.environment installs {contender.environment}")
    (peer,) = measure([contender], PLAN, print)["peers"]
    assert peer["errors"] == []
    assert peer["at_20"]["due"] == 60
    assert peer["at_100"]["due"] == 300
    assert peer["at_100"]["cpu_us"] > 0
    assert peer["at_100"]["server_us"] > 0
    assert peer["killed"]["due"] > 0
    if contender.ours:
        assert peer["killed"]["doubled"] == 0
        assert peer["at_20"]["lost"] == 0
        assert peer["at_20"]["p50_ms"] < 10_000
