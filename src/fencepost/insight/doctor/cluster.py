"""The replicas: is any of them up, is one the leader, do all run the same version?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from fencepost.insight.doctor.finding import Finding, ok, problem, the_first, warning
from fencepost.insight.doctor.opening import START
from fencepost.insight.views.shapes import Shape


def cluster(status: Shape) -> Iterator[Finding]:
    """Of an overview."""
    replicas = status["replicas"]
    live = [replica for replica in replicas if is_live(replica)]
    yield from _presence(live, has_work=any(job["schedule"] for job in status["jobs"]))
    if live:
        yield from _leadership(status["leader"])
    yield from the_first(_absent(replicas), "`fencepost status` lists all replicas")
    yield from _versions(live)


def is_live(replica: Shape) -> bool:
    return replica["state"] in ("alive", "draining")


def _presence(live: Sequence[Shape], has_work: bool) -> Iterator[Finding]:
    if live:
        yield ok("1 replica is up" if len(live) == 1 else f"{len(live)} replicas are up")
    elif has_work:
        yield problem("no replica is up: nothing runs", START)
    else:
        yield warning("no replica is up", START)


def _leadership(leader: Shape | None) -> Iterator[Finding]:
    again = "look again in a moment; if it stays like that, the logs of the replicas say why"
    if leader is None:
        yield problem("nobody leads: what is not planned yet does not run", again)
    elif leader["state"] == "overdue":
        what = f"the leader {leader['replica']} is overdue: until another takes over nothing new is planned"
        yield problem(what, again)
    else:
        yield ok(f"{leader['replica']} leads, term {leader['term']}")


def _absent(replicas: Sequence[Shape]) -> Iterator[Finding]:
    means = {"overdue": "no sign of life in time, it may be dead or cut off", "dead": "its process has ended"}
    for replica in replicas:
        if why := means.get(replica["state"]):
            where = f"host {replica['host']}, pid {replica['pid']}"
            what = f"replica {replica['replica']} ({where}) is {replica['state']}: {why}"
            yield warning(what, "look there; the leader, if there is one, takes it off and settles its runs")


def _versions(live: Sequence[Shape]) -> Iterator[Finding]:
    versions = defaultdict(list)
    for replica in live:
        versions[replica["version"] or "unknown"].append(replica["replica"])
    if len(versions) > 1:
        listed = "; ".join(
            f"{version}: {', '.join(sorted(ids)[:5])}" for version, ids in sorted(versions.items())
        )
        yield warning(
            f"replicas of different versions ({listed})",
            "right during a deploy; after it restart the old ones",
        )
