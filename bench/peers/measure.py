"""The peers side by side: all take turns in each scene, so that a disturbance of the machine meets all alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from bench.peers import environment
from bench.peers.contenders import CONTENDERS, Contender
from bench.peers.figures import Counted, busiest, longest_gap, medians, started
from bench.peers.scene import Scene, Servers, pids, sleep_until
from bench.rate import Used

LADDER = (20, 35, 50, 75, 100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 7200, 10800, 16200)
Progress = Callable[[str], object]


@dataclass(frozen=True)
class Plan:
    """How long and how often. The quick one is for trying out: its figures say little."""

    seconds: float = 5.0
    """How long a rate is measured."""
    rounds: int = 1
    search: bool = True
    """Whether to look for the highest rate."""
    search_seconds: float = 3.0
    late: float = 3.0
    """Seconds that fires may be late before the end of a measurement; those that come later count as lost."""
    calm: float = 7.0
    """Seconds after a kill, if nothing is missing."""
    patience: float = 38.0
    """Seconds after a kill, if something is."""

    @classmethod
    def quick(cls) -> Plan:
        return cls(seconds=3.0, search=False, late=2.0, calm=5.0, patience=12.0)


@dataclass
class Peer:
    """What was found out about one contender."""

    contender: Contender
    at_20: dict[str, Any] | None = None
    at_100: dict[str, Any] | None = None
    killed: dict[str, Any] | None = None
    highest: int | None = None
    tried: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        who = self.contender
        return {
            "name": who.name,
            "label": who.label,
            "version": who.version,
            "store": who.store,
            "coordinated": who.coordinated,
            "ours": who.ours,
            "only_rates": who.only_rates,
            "replicas": who.replicas if who.coordinated else 1,
            "at_20": self.at_20,
            "at_100": self.at_100,
            "killed": self.killed,
            "highest": self.highest,
            "tried": self.tried,
            "errors": self.errors,
        }


def chosen(names: Sequence[str] | None, quick: bool = False) -> list[Contender]:
    """Those, or all; a quick run leaves out the further rows."""
    unknown = set(names or ()) - {contender.name for contender in CONTENDERS}
    if unknown:
        known = ", ".join(contender.name for contender in CONTENDERS)
        raise SystemExit(f"no such peer: {', '.join(sorted(unknown))}. There are {known}")
    wanted = names or [contender.name for contender in CONTENDERS if not (quick and contender.only_rates)]
    return [contender for contender in CONTENDERS if contender.name in wanted]


def measure(contenders: Sequence[Contender], plan: Plan, progress: Progress) -> dict[str, Any]:
    for name in sorted({contender.environment for contender in contenders}):
        environment.install(name, progress)
    peers = [Peer(contender) for contender in contenders]
    begun = time.monotonic()
    with Servers() as servers:
        rounds = range(plan.rounds)
        everybody(peers, "at_100", [lambda peer: rate(peer, servers, 100, plan) for _ in rounds], progress)
        rows = [peer for peer in peers if peer.contender.only_rates]
        everybody(rows, "at_20", [lambda peer: rate(peer, servers, 20, plan) for _ in rounds], progress)
        rest = [peer for peer in peers if not peer.contender.only_rates]
        everybody(rest, "killed", [lambda peer: kill(peer, servers, plan) for _ in rounds], progress)
        for peer in rest:
            peer.at_20 = (peer.killed or {}).pop("before", None)
        for peer in rest if plan.search else ():
            guarded(peer, lambda peer: search(peer, servers, plan, progress))
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "minutes": round((time.monotonic() - begun) / 60, 1),
        "plan": asdict(plan),
        "peers": [peer.to_json() for peer in peers],
    }


Step = Callable[[Peer], dict[str, Any]]


def everybody(peers: Sequence[Peer], name: str, rounds: Sequence[Step], progress: Progress) -> None:
    """One after the other, round by round; what is kept are medians."""
    found: dict[str, list[dict[str, Any]]] = {}
    for step in rounds:
        for peer in peers:
            result = guarded(peer, step)
            if result is not None:
                found.setdefault(peer.contender.name, []).append(result)
                progress(f"{peer.contender.name}: {name} {told(result)}")
            else:
                progress(f"{peer.contender.name}: {name} {peer.errors[-1]}")
    for peer in peers:
        if peer.contender.name in found:
            setattr(peer, name, medians(found[peer.contender.name]))


def guarded(peer: Peer, step: Callable[[Peer], Any]) -> Any:
    """A peer that cannot be measured says so in its row; the others are measured."""
    try:
        return step(peer)
    except (RuntimeError, OSError) as error:
        peer.errors.append(" ".join(str(error).split())[-300:])
        return None


# --- the scenes ----------------------------------------------------------------------------------------------


def rate(
    peer: Peer, servers: Servers, number: int, plan: Plan, seconds: float | None = None
) -> dict[str, Any]:
    """So many fires a second for a time."""
    who = peer.contender
    with (
        servers.place(who.store) as place,
        Scene(who, place, number, who.replicas if who.coordinated else 1) as scene,
    ):
        since = scene.start()
        until = since + (seconds or plan.seconds)
        sleep_until(since)
        used = scene.used()
        sleep_until(until)
        used = scene.used() - used
        wait_for_late(scene, since, until, plan.late)
        return figures(scene.counted(since, until), used, started(scene.starts(), since, until))


def kill(peer: Peer, servers: Servers, plan: Plan) -> dict[str, Any]:
    """Three replicas, 20 fires a second; then `kill -9` of the leader, else of the one that ran most."""
    who = peer.contender
    with servers.place(who.store) as place, Scene(who, place, 20, 3) as scene:
        since = scene.start()
        sleep_until(since)
        used = scene.used()
        sleep_until(since + plan.seconds)
        used = scene.used() - used
        sleep_until(math.ceil(time.time()) + 0.02)
        known = scene.leader()
        victims = pids(scene.replicas)
        at = scene.kill(known if known in victims else busiest(scene.starts(), victims))
        end = at + plan.calm
        sleep_until(end)
        while end < at + plan.patience and not scene.whole(since, time.time() - plan.late):
            end = min(end + 1.0, at + plan.patience)
            sleep_until(end)
        judged = math.floor(end - plan.late)
        before = scene.counted(since, since + plan.seconds)
        after = scene.counted(math.floor(at) - 1, judged)
        return {
            "due": after.due,
            "lost": after.lost,
            "doubled": after.doubled,
            "worst_s": number(after.worst_s),
            "gap_s": max(0.0, longest_gap(scene.starts(), at, judged) - 1.0),
            "watched_s": end - at,
            "before": figures(before, used, started(scene.starts(), since, since + plan.seconds)),
        }


def wait_for_late(scene: Scene, since: float, until: float, seconds: float) -> None:
    deadline = until + seconds
    while time.time() < deadline and not scene.whole(since, until):
        time.sleep(0.25)


def search(peer: Peer, servers: Servers, plan: Plan, progress: Progress) -> None:
    """Up the ladder from where the answer is expected until a rate does not hold; or down until one does."""

    def holds(number: int) -> bool:
        try:
            found = rate(peer, servers, number, plan, plan.search_seconds)
        except RuntimeError as error:
            found = {"holds": False, "error": " ".join(str(error).split())[-200:]}
        peer.tried.append({"rate": number, **found})
        progress(f"{peer.contender.name}: {number} fires/s {told(found)}")
        return bool(found["holds"])

    peer.highest = climbed(holds, LADDER, LADDER.index(peer.contender.first_rate))


def climbed(holds: Callable[[int], bool], ladder: Sequence[int], first: int) -> int:
    """The highest rate of the ladder that held; 0 if none did."""
    place = first
    if holds(ladder[place]):
        while place + 1 < len(ladder) and holds(ladder[place + 1]):
            place += 1
        return ladder[place]
    while place > 0:
        place -= 1
        if holds(ladder[place]):
            return ladder[place]
    return 0


def figures(found: Counted, used: Used, runs: int) -> dict[str, Any]:
    """`runs`: the starts of that time, of whatever fires: one that is behind pays for older ones."""
    return {
        "due": found.due,
        "lost": found.lost,
        "doubled": found.doubled,
        "p50_ms": number(found.p50_s * 1000),
        "p99_ms": number(found.p99_s * 1000),
        "cpu_us": used.replicas / max(1, runs) * 1e6,
        "server_us": used.server / max(1, runs) * 1e6,
        "others_cores": max(0.0, used.everything - used.replicas - used.server) / used.wall,
        "holds": found.holds,
    }


def number(value: float) -> float | None:
    """JSON has no NaN: there is no lateness where nothing started."""
    return None if math.isnan(value) else value


def told(found: dict[str, Any]) -> str:
    if "error" in found:
        return str(found["error"])
    if "before" in found:
        return (
            f"{found['lost']} lost, {found['doubled']} doubled of {found['due']}, gap {found['gap_s']:.1f} s, worst "
            f"{found['worst_s'] or math.nan:.1f} s late; before: {told(found['before'])}"
        )
    p50, p99 = (math.nan if found[name] is None else found[name] for name in ("p50_ms", "p99_ms"))
    return (
        f"{p50:.1f} / {p99:.1f} ms late, {found['lost']} lost, {found['doubled']} doubled of {found['due']}, "
        f"{found['cpu_us']:.0f} + {found['server_us']:.0f} µs, others' cores {found['others_cores']:.1f}"
        f"{', holds' if found['holds'] else ''}"
    )
