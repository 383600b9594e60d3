"""Replicas, the lease of their leader, and which history of the store they are in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

STEPS_OF_A_PRESENCE = 1 << 32
"""More steps than the store counts for any presence."""


@dataclass(frozen=True)
class ReplicaRecord:
    """A replica's presence. Its claims live exactly as long: one renewal renews them all."""

    id: str
    host: str
    pid: int
    version: str
    joined_at: datetime
    ttl: float
    heartbeat: float
    expires: float
    """On the store's steady clock."""
    renewals: int = 0
    beat_no: int = 0
    claim_no: int = 0
    """Number of the last claim attempt decided for it."""
    steps: int = 0
    """Steps the store has taken for it. A replica that has seen more proves that the store has lost writes."""
    targets: tuple[str, ...] = ()
    draining: bool = False
    lingering: tuple[str, ...] = ()
    """Fires whose bodies go on here although their runs have ended: a thread cannot be stopped."""


@dataclass(frozen=True)
class Era:
    """Which history of the store this is (`docs/decisions/0016-data-loss.md`)."""

    incarnation: int = 0
    """Tokens of a later one outrank all of an earlier one."""
    standing: Literal["settled", "restarted", "lost"] = "settled"
    """Settled: a replica has claimed in it. Before that it is in doubt, because the server restarted, or because
    the store is known to have lost something."""
    lost_through: datetime | None = None
    """What was due by then may have run in a history that is gone."""
    server: str = ""
    """Which start of the server began it. That it began may be lost, too, and the next one has the same number."""

    @property
    def first_token(self) -> int:
        return self.incarnation << 40


@dataclass(frozen=True)
class Lease:
    """Leadership. It only saves work: nothing unsafe happens with two leaders or none."""

    holder: str | None = None
    term: int = 0
    renewals: int = 0
    ttl: float = 0.0
    heartbeat: float = 0.0
    expires: float = 0.0
    era: Era = Era()


LEADERSHIP = "!leader"
"""Changes of leadership are kept among the events of jobs, under this id, which no job can have: `led` and `resigned`,
with the term as the version and the replica in `by`."""
