"""The suite every store must pass.

A backend's test file gives a `harness` and inherits everything else:

    class TestMemory(StoreConformance):
        @pytest.fixture
        async def harness(self):
            clock = HandClock()
            yield Harness.with_clock(MemoryStore(clock), clock)

It speaks to the store only through its interface, one small test per rule. Time is the store's own: a harness
moves it in whatever way its store allows. Tests leave room for a clock that also moves by itself a little.
"""

from __future__ import annotations

import pytest

from fencepost.testing.conformance.backfills import BackfillRules, JitterRules, LaterRules, SkipRules
from fencepost.testing.conformance.chains import ChainRules
from fencepost.testing.conformance.claims import ClaimRules, MisfireRules, OverlapRules, PauseRules, RowRules
from fencepost.testing.conformance.definitions import (
    DefinitionRules,
    HighWaterRules,
    OrphanRules,
    PlanningRules,
    RemovalRules,
)
from fencepost.testing.conformance.fires import (
    CancelRules,
    DeclaredDeadRules,
    HintRules,
    LedgerRules,
    ManualRules,
    SettleRules,
)
from fencepost.testing.conformance.harness import NOON, HandClock, Harness, job_of, steps
from fencepost.testing.conformance.limits import LimitRules, RateRules
from fencepost.testing.conformance.loss import DataLossRules
from fencepost.testing.conformance.mended import MendedRules
from fencepost.testing.conformance.notices import NoticeRules
from fencepost.testing.conformance.origins import AbandonedRules, OriginRules, SourceRules
from fencepost.testing.conformance.outcomes import OutcomeRules, PageRules
from fencepost.testing.conformance.past import PastRules
from fencepost.testing.conformance.presence import LeadershipRules, PresenceRules, SweepRules
from fencepost.testing.conformance.priorities import PriorityRules
from fencepost.testing.conformance.remote import PoolRules, RemoteRules
from fencepost.testing.conformance.simulated import SimulatedRules

__all__ = ["NOON", "HandClock", "Harness", "StoreConformance", "job_of", "steps"]


class StoreConformance(
    PresenceRules,
    LeadershipRules,
    SweepRules,
    DefinitionRules,
    PlanningRules,
    OriginRules,
    SourceRules,
    AbandonedRules,
    PastRules,
    ClaimRules,
    PauseRules,
    MisfireRules,
    OverlapRules,
    PriorityRules,
    LimitRules,
    RateRules,
    ChainRules,
    RowRules,
    SettleRules,
    OutcomeRules,
    HighWaterRules,
    ManualRules,
    LaterRules,
    BackfillRules,
    SkipRules,
    JitterRules,
    CancelRules,
    DeclaredDeadRules,
    RemovalRules,
    OrphanRules,
    LedgerRules,
    PageRules,
    HintRules,
    DataLossRules,
    MendedRules,
    NoticeRules,
    PoolRules,
    RemoteRules,
    SimulatedRules,
):
    """Every rule. A subclass gives the fixture `harness`."""

    @pytest.fixture
    async def harness(self) -> Harness:
        raise NotImplementedError("give the store under test: a fixture that yields a Harness")
