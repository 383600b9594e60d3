"""What the judges share: the store, the time, the bodies, the tokens, and what was found to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from fencepost.clock import Moment
from fencepost.model import FireRecord, Job, JobRecord
from fencepost.store.base import Claim
from fencepost.testing.world import EPOCH
from tests.protocol.calendar import due_between

if TYPE_CHECKING:
    from tests.protocol.sim.store import SimulatedStore


@dataclass(eq=False, slots=True)
class Body:
    """A user's function at work."""

    claim: Claim
    process: str
    started: float
    ended: float | None = None
    finished: bool = False
    """It came to its end; otherwise it failed, or was cancelled."""

    @property
    def fire(self) -> FireRecord:
        return self.claim.fire

    @property
    def job(self) -> Job:
        return self.claim.job

    @property
    def key(self) -> str:
        return self.claim.fire.key

    @property
    def token(self) -> int:
        return self.claim.fire.token


def at_once(job: Job) -> int:
    """How many runs it may have at once, worked out a second time."""
    return job.overlap.limit if job.overlap.kind == "allow" else 1


Attempt = tuple[str, int]
"""The key of a fire, and a token."""


@dataclass(slots=True)
class Books:
    state: SimulatedStore
    now: Callable[[], float]
    """The one true time."""
    moment: Callable[[], Moment]
    """The store's."""
    ttl: float
    heartbeat: float
    violations: list[str] = field(default_factory=list)
    bodies: dict[Attempt, Body] = field(default_factory=dict)
    current: dict[str, int] = field(default_factory=dict)
    """By fire: the token that may act on it."""
    limits: dict[Attempt, int] = field(default_factory=dict)
    """By claim: how many runs its job was allowed when it was made."""
    unkept: set[Attempt] = field(default_factory=set)
    """Runs that were refused because what they keep cannot be stored: the row of their job cannot be read."""
    dead: set[str] = field(default_factory=set)
    """Processes that have ended."""
    forgotten: set[Attempt] = field(default_factory=set)
    """Claims the store has lost. Whoever holds one cannot know."""
    forgiven: set[Attempt] = field(default_factory=set)
    """Those of them that nobody could tell the store of in time: such a fire may run twice."""
    forgotten_eras: set[tuple[int, str]] = field(default_factory=set)
    """Incarnations, and in which start of the server each was, of which the store has lost all trace. A later one may
    have the same number."""
    unknowable: set[int] = field(default_factory=set)
    """The numbers of those whose every witness was dead when the loss was noticed."""
    paused: dict[str, float] = field(default_factory=dict)
    """By process: when its last pause ended."""
    targets: dict[str, frozenset[str]] = field(default_factory=dict)
    """By process: the tasks it knows."""
    latest: datetime = EPOCH
    """The latest the store's clock has been, up to its last step."""
    stepped_back: bool = False
    unwritable: dict[Attempt, bool] = field(default_factory=dict)
    """Attempts whose outcome and reports the store cannot write; True: nor anything else, until all is well."""
    losses: int = 0
    """How often the store has lost data."""
    asked_again: dict[str, int] = field(default_factory=dict)
    """Names of backfills that a person has resumed, and how the keys end of fires that one has asked for, and after how
    many losses. What the store had forgotten by then of them, and of the fires that follow them, may run again; also
    after a further loss, unless that has undone the asking."""
    forgotten_in: dict[Attempt, int] = field(default_factory=dict)
    """By forgotten attempt: the loss."""
    excused: set[Attempt] = field(default_factory=set)
    """Claims ended early although their replica is alive: only a step of the store's clock may do that, or a person
    who says so."""

    def job(self, id: str) -> JobRecord:
        """As it is stored, also where the store cannot read it."""
        return self.state.kept_job(id)

    def ask_again(self, name: str) -> None:
        self.asked_again[name] = self.losses

    def is_asked_again(self, name: str, attempt: Attempt) -> bool:
        """Whether a person has asked for it since the store forgot this attempt."""
        return self.asked_again.get(name, 0) >= self.forgotten_in[attempt]

    def may_be_given_again(self, attempt: Attempt) -> bool:
        """Whether a later claim may have the token of this one, or a lower one: the incarnation it was made in is
        forgotten, and so was everybody who could have told of it before somebody claimed in the next one."""
        incarnation = attempt[1] >> 40
        if incarnation in self.unknowable:
            return True
        return attempt in self.forgiven and any(number == incarnation for number, _ in self.forgotten_eras)

    def latest_now(self) -> datetime:
        """The latest the store's clock has ever been, also inside a step."""
        return max(self.latest, self.moment().wall)

    def was_paused(self, process: str, since: float) -> bool:
        return self.paused.get(process, -1.0) > since

    def waits_for_the_clock(self, job_id: str, now: datetime) -> bool:
        """Where the store's clock has stepped back, what was late then and waited for the planner is looked at when
        its calendar is planned on, or when the clock has caught up."""
        look = self.state.decide_at(job_id)
        return self.stepped_back and (look is None or look > now)

    def due(self, job_id: str, after: datetime | None, until: datetime) -> list[datetime]:
        """From the definitions, by the store's time at which each took effect. One holds until its successor does,
        which is later than the change where the store's clock had stepped back: fires up to then were decided."""
        defined = [e for e in self.state.jobs.events_by_job[job_id] if e.kind in ("defined", "removed")]
        due: list[datetime] = []
        for event, successor in zip(defined, [*defined[1:], None], strict=True):
            if event.trigger is not None:
                end = min(until, successor.since) if successor else until
                due += due_between(event.trigger, max(event.since, after or event.since), end)
        return due

    def violation(self, rule: str, text: str) -> None:
        self.violations.append(f"{rule}: {text}")
