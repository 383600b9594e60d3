"""What happens to the three processes."""

from __future__ import annotations

import time
from collections.abc import Iterator

from soak.cluster import TTL, StreamEvent, ended, fences, three
from soak.places import Place, tags

from tests.cluster.harness import Cluster, Verdict
from tests.servers import cut_after


def calm(where: Place, seconds: float) -> StreamEvent:
    with three(where) as cluster:
        yield f"three processes, {seconds:.0f} s"
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(10.0, left))
            yield f"{sum(mark.what == 'start' for mark in cluster.marks())} starts"
        yield from ended(cluster)


def faults(where: Place, seconds: float) -> StreamEvent:
    with three(where) as cluster:
        pause = max(2.0, (seconds - 3 * TTL) / 5)
        time.sleep(pause)
        for name, choose in (("the leader", cluster.leader), ("a worker", cluster.worker)):
            yield f"kill -9 of {name}, {cluster.kill(choose()).pid}, and a new one"
            cluster.start(1)
            time.sleep(pause)
        leader = cluster.leader()
        code = cluster.terminate(leader)
        yield f"SIGTERM to the leader, {leader.pid}: exit code {code}, and a new one"
        if code != 0:
            yield f"violation: exit code {code} after SIGTERM"
        cluster.start(1)
        time.sleep(pause)
        yield from stop_and_go(cluster)
        time.sleep(pause)
        if where.server is not None and where.fail_over is None:  # else another takes over: see failover
            where.server.restart()
            yield "the server has been restarted"
            time.sleep(pause)
        yield from ended(cluster)


def rolling_restart(where: Place, seconds: float) -> StreamEvent:
    """Each of three processes is stopped gracefully and replaced, in turn, five times over."""
    with three(where, rate=50) as cluster:
        time.sleep(3)
        for number in range(1, 6):
            for process in list(cluster.alive):
                code = cluster.terminate(process)
                if code != 0:
                    yield f"violation: exit code {code} after SIGTERM"
                cluster.start(1)
            yield f"round {number}: all three replaced"
        for told in ended(cluster):
            if isinstance(told, Verdict) and told.states["lost"]:
                yield f"violation: {told.states['lost']} lost"
            yield told


def lost_replies(where: Place, seconds: float) -> StreamEvent:
    """Every third reply to a claim and every fifth to a settle is cut off after the server has committed."""
    if where.proxy is None:
        yield "skipped, there is no network"
        return
    claim, settle = tags(where.store)
    claims = where.proxy.rule(cut_after, claim, every=3)
    settles = where.proxy.rule(cut_after, settle, every=5)
    with three(where) as cluster:
        time.sleep(seconds)
        yield f"cut off: {claims.done} replies to claims, {settles.done} to settles"
        where.proxy.clear()
        if not claims.done or not settles.done:
            yield "violation: nothing was cut off"
        yield from ended(cluster)


def stop_and_go(cluster: Cluster) -> Iterator[str]:
    leader, term = cluster.leader(), cluster.roster().leader.term
    stopped = time.monotonic()
    cluster.stop(leader)
    yield f"SIGSTOP of the leader, {leader.pid}, for {3 * TTL:.0f} s (caught in a transaction: {cluster.caught})"
    cluster.wait_for(lambda: cluster.roster().leader.term > term, 3 * TTL, "somebody else leads")
    yield f"taken over after {time.monotonic() - stopped:.2f} s"
    time.sleep(max(0.0, stopped + 3 * TTL - time.monotonic()))
    cluster.resume(leader)
    cluster.wait_for(lambda: "leader.lost" in leader.told(), 2 * TTL, "the resumed leader steps down")
    yield "the resumed leader has stepped down"


def clock_steps(where: Place, seconds: float) -> StreamEvent:
    """The clock goes forward by 8 s, back, back by another 5 s, and forward again, all within half a minute.
    What was due in a stretch that comes twice ran the first time."""
    if where.server is not None:
        yield "skipped, what is due is judged by the server's clock"
        return
    if where.clock is None:
        yield "skipped, the clock cannot be set here"
        return
    with three(where, env=where.clock.env) as cluster:
        before = cluster.roster()
        for offset, length in ((0, 5), (8, 5), (0, 9), (-5, 6), (0, 7)):
            where.clock.set(offset)
            yield f"the clock is {offset:+d} s off"
            time.sleep(length)
        after = cluster.roster()
        if (after.leader.holder, after.leader.term) != (before.leader.holder, before.leader.term):
            yield "violation: leadership changed with the clock"
        if {replica.id for replica in after.replicas} != {replica.id for replica in before.replicas}:
            yield "violation: a replica was declared dead"
        yield from fences(cluster.processes)
        yield from ended(cluster)
