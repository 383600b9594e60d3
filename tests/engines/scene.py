"""Three replicas hand fires to a real engine while everything around them fails; then every fire is judged.

Used by `python -m soak.engines`, and for a short while by the slow tests.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fencepost.insight.audit import audit
from fencepost.insight.audit.report import Kind
from fencepost.model import FireRecord, State
from fencepost.store.base import FireQuery
from tests.cluster.harness import PAGE, Cluster, Mark
from tests.engines.places import PLACES, ROOT, Place
from tests.servers import Proxy, cut_after, valkey

APP = ROOT / "tests" / "engines" / "apps" / "load.py"
PERIOD = 30.0
BY_HAND = 2
"""Jobs of the application that have no fires unless triggered."""
LEAD_IN = 6.0
BODIES = "0.05,0.1,0.2,0.5,1,2,3,6,12,20"
"""Seconds: several are longer than Celery's visibility timeout of 4 s, all shorter than the period."""
TTL = 10.0
"""Seconds, four heartbeats: a worker that gets no processor for as long counts as dead, and no harm explains that."""
ADOPTED_WITHIN = 3.0
"""TTLs after the kill of a replica: it expires, the leader (perhaps a new one) sweeps it, the others poll."""
BETWEEN = 7.0
"""Seconds between two faults."""
LOST_REPLIES = 60
"""Of so many writes to the store, the reply to one is cut off."""
PATIENCE = 240.0

Run = tuple[str, int]
"""The key of a fire, and a token."""


@dataclass(frozen=True)
class LeftBehind:
    """A run that was on when the replica that looked after it was killed."""

    replica: str
    killed_at: float
    adopted_by: float
    """Until when another replica must have adopted it, if it is still on."""


@dataclass
class Judged:
    found: int = 0
    """Fires that were due."""
    states: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Of those that neither succeeded nor were skipped."""
    starts: int = 0
    doubled: list[str] = field(default_factory=list)
    """Started or ended twice with one token, or started again although the start before is not on record as lost."""
    unaccounted: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    """Succeeded, but no body has started and ended under the fire's token."""
    audit: list[str] = field(default_factory=list)
    """What else the audit has found."""
    lost_unexplained: list[str] = field(default_factory=list)
    """Called lost, or run again, although the worker that had it was not killed."""
    failed: list[str] = field(default_factory=list)
    """No body of the scene fails."""
    not_adopted: list[str] = field(default_factory=list)
    """Ended long after its replica was killed, and no other replica had adopted it."""
    refused: int = 0
    """Deliveries that the start gate has refused."""
    left_behind: int = 0
    """Runs that were on when the replica that looked after them was killed."""
    ended: int = 0
    """Those of them that ended under the same token."""
    adopted: int = 0
    """Those of these that another replica looked after by then; the others ended before the dead one's presence did."""
    rerun: int = 0

    @property
    def violations(self) -> list[str]:
        return [
            f"{name}: {len(found)}, as {', '.join(found[:3])}"
            for name in _VIOLATIONS
            if (found := getattr(self, name))
        ]

    def __str__(self) -> str:
        states = ", ".join(f"{number} {state}" for state, number in sorted(self.states.items()))
        return (
            f"due {self.found}: {states}; {self.starts} starts, {self.rerun} of them reruns after a crash; "
            f"{self.refused} deliveries refused; {self.ended} of {self.left_behind} runs of killed replicas ended "
            f"under their token, {self.adopted} of them adopted; doubled {len(self.doubled)}, unaccounted "
            f"{len(self.unaccounted)}; reasons {dict(self.reasons)}"
        )


_VIOLATIONS = ("doubled", "unaccounted", "invented", "audit", "lost_unexplained", "failed", "not_adopted")


def settings(ttl: float = TTL) -> dict[str, Any]:
    return {"leader_ttl": ttl, "run_ttl": ttl, "heartbeat": ttl / 4}


def play(
    name: str,
    folder: Path,
    seconds: float,
    rate: float,
    seed: int = 0,
    ttl: float = TTL,
    lost_replies: int = LOST_REPLIES,
) -> Iterator[str | Judged]:
    """What happens at one of `PLACES`, and at the end what became of it all."""
    draw = random.Random(seed)
    with valkey(appendonly=True, appendfsync="always") as store, Proxy(store.url) as proxy:
        anchor = time.time() + LEAD_IN
        log = folder / "runs.log"
        load = {
            "LOAD_BODIES": BODIES,
            "LOAD_JOBS": str(round(rate * PERIOD)),
            "LOAD_PERIOD": str(PERIOD),
            "LOAD_ANCHOR": str(anchor),
            "LOAD_END": str(anchor + seconds),
            "LOAD_STORE": proxy.url,
            "LOAD_LOG": str(log),
            "FENCEPOST_STORE": proxy.url,
        }
        slots = max(4, round(rate * 5))
        with (
            PLACES[name](folder, load, slots=slots) as place,
            Cluster(
                proxy.url, folder, reader_url=store.url, anchor=anchor, env=place.replica_env, **settings(ttl)
            ) as cluster,
        ):
            cluster.start(1, APP, seconds=60)
            jobs = round(rate * PERIOD) + BY_HAND
            cluster.wait_for(
                lambda: len(cluster.reader.ask(lambda store: store.jobs())) == jobs,
                120,
                "jobs are declared",
            )
            cluster.start(2, APP, seconds=60)
            yield f"3 replicas on {name}, {rate} fires/s, bodies of {BODIES} s"
            lost = proxy.rule(cut_after, match=b"EVALSHA", every=lost_replies)
            left_behind: dict[Run, LeftBehind] = {}
            yield from _harm(cluster, place, draw, anchor + seconds, left_behind, ttl)
            proxy.clear()
            yield f"{lost.done} replies of the store cut off; settling"
            _settle(cluster, place)
            yield _judge(cluster, place, left_behind)


def _harm(
    cluster: Cluster,
    place: Place,
    draw: random.Random,
    until: float,
    left_behind: dict[Run, LeftBehind],
    ttl: float,
) -> Iterator[str]:
    begun = time.monotonic()
    faults = ["replica", "worker", "servers", "cut"]
    while time.time() + BETWEEN < until:
        time.sleep(BETWEEN)
        place.tend()
        fault = faults.pop(0)
        faults.append(fault)
        if fault == "replica":
            done = _kill_replica(cluster, draw, left_behind, ttl)
        elif fault == "worker":
            done = place.kill_worker(draw)
        else:
            done = place.restart_servers() if fault == "servers" else place.cut()
        yield f"{time.monotonic() - begun:5.1f} s  {done}"
    time.sleep(max(0.0, until - time.time()))


def _kill_replica(
    cluster: Cluster, draw: random.Random, left_behind: dict[Run, LeftBehind], ttl: float
) -> str:
    process = cluster.leader(120) if draw.random() < 0.5 else draw.choice(cluster.alive)
    cluster.kill(process)
    now = time.time()
    replicas = {replica for replica, pid in cluster.replicas.items() if pid == process.pid}
    query = FireQuery(states=(State.RUNNING,), limit=PAGE)
    running = cluster.reader.ask(lambda store: store.find_fires(query))
    its_own = {
        (fire.key, fire.token): LeftBehind(fire.remote["by"], now, now + ADOPTED_WITHIN * ttl)
        for fire in running
        if fire.remote and fire.remote.get("by") in replicas
    }
    left_behind |= its_own
    cluster.spawn(1, APP)
    return f"kill -9 of replica {process.pid}, which looked after {len(its_own)} runs, and a new one"


def _settle(cluster: Cluster, place: Place) -> None:
    """Until all is final. Nothing more falls due."""
    until = datetime.now(UTC)
    since = datetime.fromtimestamp(cluster.anchor, UTC) - timedelta(days=1)

    left: list[FireRecord] = []

    def all_final() -> bool:
        place.tend()
        time.sleep(0.5)
        left[:] = [fire for fire in cluster.reader.fires(since, until) if not fire.state.final]
        return not left

    try:
        cluster.wait_for(all_final, PATIENCE, "all that was due is settled")
    except AssertionError as error:
        open_still = "\n".join(f"{fire.key} {fire.state} {fire.token} {fire.remote}" for fire in left)
        raise AssertionError(f"{error}\nnot settled:\n{open_still}\n{place}") from None


def _judge(cluster: Cluster, place: Place, left_behind: dict[Run, LeftBehind]) -> Judged:
    until = datetime.now(UTC) - timedelta(seconds=1)
    report = cluster.reader.ask(
        lambda store: audit(store, since=datetime.fromtimestamp(cluster.anchor, UTC), until=until)
    )
    since = datetime.fromtimestamp(cluster.anchor, UTC) - timedelta(days=1)
    judged = Judged(found=report.expected)
    for kind, findings in report.findings.items():
        into = judged.unaccounted if kind is Kind.UNACCOUNTED else judged.audit
        into += [f"{found.kind} {found.key or found.due_at}: {found.why}" for found in findings]
    marks: dict[str, list[Mark]] = defaultdict(list)
    for mark in cluster.marks():
        marks[mark.key].append(mark)
    for fire in cluster.reader.fires(since, until):
        if fire.state.final:
            _follow(judged, fire, marks[fire.key], place, left_behind)
    return judged


def _follow(
    judged: Judged, fire: FireRecord, marks: list[Mark], place: Place, left_behind: dict[Run, LeftBehind]
) -> None:
    judged.states[fire.state.value] += fire.count
    if fire.state not in (State.SUCCEEDED, State.SKIPPED):
        judged.reasons[f"{fire.state.value}: {fire.reason}"] += fire.count
    if fire.state is State.FAILED:
        judged.failed.append(f"{fire.key} ({fire.reason}: {fire.error})")
    starts = [mark for mark in marks if mark.what == "start"]
    tokens = [mark.token for mark in starts]
    judged.starts += len(starts)
    judged.rerun += max(0, len(starts) - 1)
    outcomes = {attempt.token: attempt.outcome for attempt in fire.attempts}
    ended = [mark.token for mark in marks if mark.what == "end"]
    twice = len(set(tokens)) < len(tokens) or len(set(ended)) < len(ended)
    if twice or any(outcomes.get(token) != "lost" for token in tokens[:-1]):
        judged.doubled.append(fire.key)
    ends = {mark.token: mark for mark in marks if mark.what == "end"}
    if fire.state is State.SUCCEEDED and not (fire.token in tokens and fire.token in ends):
        judged.invented.append(fire.key)
    lost = {token for token, outcome in outcomes.items() if outcome == "lost"}
    if any(mark.token in lost and mark.replica not in place.killed for mark in starts):
        judged.lost_unexplained.append(fire.key)
    judged.refused += int((fire.remote or {}).get("refused", 0))
    for token in tokens:
        left = left_behind.get((fire.key, token))
        if left is None:
            continue
        judged.left_behind += 1
        if token not in ends or token in lost:
            continue
        judged.ended += 1
        adopted = fire.token == token and (fire.remote or {}).get("by") != left.replica
        judged.adopted += adopted
        if fire.token == token and not adopted and ends[token].wall > left.adopted_by:
            judged.not_adopted.append(f"{fire.key} of {left.replica}")
