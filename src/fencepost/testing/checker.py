"""Judges a simulated history: S1 to S9 and L1 to L5 of the promises.

It keeps its own books from what it sees committed and started, and compares with a calendar of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fencepost.model import FireRecord, State
from fencepost.store.base import Claimed, ClaimRequest, GiveBack, Report, Swept, Update, Updated
from fencepost.store.state import StoreState
from fencepost.testing.calendar import due_between

STEADY_LATENESS = 0.15
"""L2: a due fire starts within 100 ms, the simulated network's own delays on top."""


@dataclass(slots=True)
class Body:
    job_id: str
    key: str
    token: int
    process: str
    started: float
    ended: float | None = None


@dataclass(slots=True)
class Checker:
    state: StoreState
    ttl: float
    violations: list[str] = field(default_factory=list)
    current: dict[str, int] = field(default_factory=dict)
    """By fire: the token that may act on it."""
    last_token: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    settled: set[tuple[str, int]] = field(default_factory=set)
    bodies: dict[tuple[str, int], Body] = field(default_factory=dict)
    running: dict[tuple[str, int], Body] = field(default_factory=dict)
    final: dict[str, State] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
    effect_tokens: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    first_start: dict[str, float] = field(default_factory=dict)
    expected_on_time: dict[str, float] = field(default_factory=dict)
    clock_stepped: bool = False
    dead: set[str] = field(default_factory=set)
    """Processes that have ended."""
    commits: int = 0
    numbers: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    renewed: dict[str, float] = field(default_factory=dict)
    """By replica: when the store last heard from it."""

    def violation(self, rule: str, text: str) -> None:
        self.violations.append(f"{rule}: {text}")

    # --- as it happens ------------------------------------------------------------------------------

    def committed(self, name: str, args: Sequence[Any], reply: Any, healthy: set[str], now: float) -> None:
        self.commits += 1
        if name in ("heartbeat", "claim_fires"):
            self._renewed(name, args[0].replica, args[0].number, now)
        if name == "claim_fires":
            self._claimed(args[0], reply)
        elif name == "update_claims":
            self._updated(args[1], reply)
        elif name == "sweep" and reply is not None:
            self._swept(reply, healthy, now)
        elif name == "leave":
            self._left()
        if self.commits % 20 == 0:
            self._finals_stand()

    def _renewed(self, name: str, replica: str, number: int, now: float) -> None:
        """Only what is new renews: a delayed message from the past is no sign of life."""
        if number > self.numbers[replica, name]:
            self.numbers[replica, name] = number
            self.renewed[replica] = now

    def _claimed(self, request: ClaimRequest, reply: Claimed) -> None:
        for claim in reply.claims:
            fire = claim.fire
            if self.current.get(fire.key) == fire.token:
                continue  # the same reply, asked for again
            if fire.key in self.current:
                self.violation(
                    "S1", f"{fire.key} claimed with token {fire.token} while {self.current[fire.key]}"
                )
            if fire.token <= self.last_token[fire.job_id]:
                self.violation("S4", f"{fire.key}: token {fire.token} after {self.last_token[fire.job_id]}")
            if self.final.get(fire.key):
                self.violation("S5", f"{fire.key} claimed although {self.final[fire.key]}")
            if claim.job.execute_on == "leader":
                lease = self.state.leader
                if (lease.holder, lease.term) != (request.replica, request.term):
                    self.violation(
                        "C3", f"{fire.key}: {request.replica} does not lead in term {request.term}"
                    )
            self.current[fire.key] = fire.token
            self.last_token[fire.job_id] = fire.token

    def _updated(self, updates: Sequence[Update], reply: Updated) -> None:
        for update, accepted in zip(updates, reply.accepted, strict=True):
            if not accepted or (update.key, update.token) in self.settled:
                continue
            if self.current.get(update.key) != update.token:
                self.violation("S5", f"{update.key}: stale token {update.token} was accepted ({update})")
            if isinstance(update, Report):
                continue
            body = self.bodies.get((update.key, update.token))
            if isinstance(update, GiveBack) and not update.started and body is not None:
                self.violation("S1", f"{update.key}: given back as not started, but it did")
            if body is not None and body.ended is None:
                self.violation("S6", f"{update.key}: settled while its body runs")
            self.settled.add((update.key, update.token))
            self._over(update.key)

    def _swept(self, reply: Swept, healthy: set[str], now: float) -> None:
        for replica in reply.expired:
            silence = now - self.renewed.get(replica, 0.0)
            if replica not in self.dead and silence < self.ttl and not self.clock_stepped:
                self.violation("L-healthy", f"{replica} expired {silence:.1f} s after renewing")
        for fire in reply.settled:
            if fire.replica in healthy:
                self.violation("L-healthy", f"{fire.key} lost although {fire.replica} is well")
            self._over(fire.key)

    def _left(self) -> None:
        for key in list(self.current):
            fire = self.state.fires.get(key)
            if fire is None or fire.state is not State.RUNNING:
                self._over(key)

    def _over(self, key: str) -> None:
        token = self.current.pop(key, None)
        if token is not None:
            self.running.pop((key, token), None)

    def started(self, fire: FireRecord, process: str, now: float, at_once: int) -> None:
        body = Body(fire.job_id, fire.key, fire.token, process, now)
        if (fire.key, fire.token) in self.bodies:
            self.violation("S1", f"{fire.key} started twice with token {fire.token}")
        if self.current.get(fire.key) != fire.token and not self.clock_stepped:
            self.violation(
                "S7", f"{fire.key} started on {process} with token {fire.token}, which is not current"
            )
        self.bodies[fire.key, fire.token] = body
        self.first_start.setdefault(fire.key, now)
        if self.current.get(fire.key) == fire.token:
            others = [other for other in self.running.values() if other.job_id == fire.job_id]
            if len(others) >= at_once:
                self.violation("S6", f"{fire.key} runs beside {[other.key for other in others]}")
            self.running[fire.key, fire.token] = body

    def ended(self, key: str, token: int, now: float) -> None:
        self.running.pop((key, token), None)
        body = self.bodies.get((key, token))
        if body is not None:
            body.ended = now

    def killed(self, process: str, now: float) -> None:
        self.dead.add(process)
        for body in self.bodies.values():
            if body.process == process and body.ended is None:
                self.ended(body.key, body.token, now)

    def effect(self, resource: str, key: str, token: int) -> bool:
        """A sink outside the store: refuses a lower token than it has seen, and a fire it has seen."""
        if token < self.effect_tokens[resource] or key in self.effects:
            return False
        self.effect_tokens[resource] = token
        self.effects[key] = token
        return True

    def _finals_stand(self) -> None:
        for key, fire in self.state.fires.items():
            known = self.final.get(key)
            if fire.state.final:
                if known is not None and known is not fire.state:
                    self.violation("S5", f"{key} was {known}, now {fire.state}")
                self.final[key] = fire.state
            elif known is not None:
                self.violation("S5", f"{key} was {known}, now {fire.state}")

    # --- at the end -----------------------------------------------------------------------------------

    def finish(self, until: datetime) -> None:
        self._finals_stand()
        for job_id in self.state.jobs_by_id:
            self._calendar_kept(job_id, until)
        for key, due in self.expected_on_time.items():
            started = self.first_start.get(key)
            if started is None or started > due + STEADY_LATENESS:
                self.violation("L2", f"{key}: due at {due:.3f}, started at {started}")
        for fire in self.state.fires.values():
            if not fire.state.final and fire.due_at <= until:
                self.violation("S8", f"{fire.key} is {fire.state} long after all is well ({fire})")
            if fire.state is State.SUCCEEDED and fire.key not in self.effects:
                self.violation("S2", f"{fire.key} succeeded, but its effect was refused")
            if fire.count > 1 and fire.token:
                self.violation("S8", f"{fire.key} stands for {fire.count} fires, but was claimed")

    def _calendar_kept(self, job_id: str, until: datetime) -> None:
        """Every fire of the calendars in force is in the ledger once (S8), and nothing else is (S3)."""
        due = self._due(job_id, until)
        rows = sorted(
            (fire for fire in self.state.fires.values() if fire.job_id == job_id and fire.scheduled),
            key=lambda fire: fire.due_at,
        )
        position = 0
        for row in rows:
            if row.due_at > until:
                break
            covered = [moment for moment in due if row.due_at <= moment <= row.last_due]
            if len(covered) != row.count and row.last_due <= until:
                self.violation(
                    "S3", f"{row.key} stands for {row.count} fires, the calendar has {len(covered)}"
                )
            while position < len(due) and due[position] < row.due_at:
                self.violation("S8", f"{job_id} at {due[position]} is in no row")
                position += 1
            if position >= len(due) or due[position] != row.due_at:
                self.violation("S8", f"{row.key} is in two rows, or in no calendar")
            position += len(covered)
        for moment in due[position:]:
            self.violation("S8", f"{job_id} at {moment} is in no row")
        runs = sum(1 for row in rows if row.token and row.due_at <= until)
        if runs > len(due):
            self.violation("L5", f"{job_id}: {runs} runs for {len(due)} fires")

    def _due(self, job_id: str, until: datetime) -> list[datetime]:
        """From the definitions, by the store's time at which each took effect."""
        defined = [e for e in self.state.events[job_id] if e.kind in ("defined", "removed")]
        due: list[datetime] = []
        for event, successor in zip(defined, [*defined[1:], None], strict=True):
            if event.trigger is None:
                continue
            end = min(until, successor.at) if successor else until
            due += [moment for moment in due_between(event.trigger, event.since, end)]
        if due != sorted(set(due)):
            self.violation("S3", f"{job_id}: calendars overlap")
        return due
