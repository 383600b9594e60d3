"""What happens to a server, while runs of ten seconds and more go on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime

from soak.cluster import TTL, StreamEvent, ended, fences, three
from soak.places import Place

from fencepost import every
from fencepost.model import Job, Reason, State
from fencepost.store.base import ChangeJob, PutJob
from tests.cluster.harness import Cluster, Mark, Verdict
from tests.servers import clock

LONG = 30.0
OUTAGE = 20.0
AT_ONCE = 1.0
"""Seconds in which starts must have stopped after the store is lost: a claim's reply may be on its way."""
ON_TIME = 0.5
NO_SERVER = "skipped, there is no server"


def outage(where: Place, seconds: float) -> StreamEvent:
    """The server is away for ten TTLs. Starts stop at once; what runs goes on, and is settled afterwards."""
    if where.server is None:
        yield NO_SERVER
        return
    if where.fail_over is not None:
        yield "skipped, another server takes over: see failover"
        return
    with three(where, rate=20, long=LONG) as cluster:
        key = begin_long(cluster)
        where.server.stop()
        down = time.time()
        yield f"the server is down for {OUTAGE:.0f} s"
        time.sleep(OUTAGE)
        where.server.start()
        up = time.time()
        cluster.wait_for(lambda: started_after(cluster, up), 4 * TTL, "fires start again")
        yield f"starts went on {min(m.wall for m in started_after(cluster, up)) - up:.2f} s after it was back"
        late = [mark for mark in started_after(cluster, down + AT_ONCE) if mark.wall < up]
        if late:
            yield f"violation: {len(late)} starts while the store was down, as {late[0].key}"
        for process in cluster.processes:
            lost = process.told().count("store.degraded")
            if lost != 1:
                yield f"violation: {process.pid} told {lost} times that the store is lost"
        yield from long_has_succeeded(cluster, key)
        for told in ended(cluster):
            if not isinstance(told, str) and told.states["lost"]:
                yield f"violation: {told.states['lost']} lost"
            yield told


def failover(where: Place, seconds: float) -> StreamEvent:
    """A server that lacks the last writes takes over. What it lacks is on record as lost; nothing runs twice."""
    if where.fail_over is None:
        yield "skipped, there is only one server"
        return
    with three(where) as cluster:
        pause = max(3.0, (seconds - 3 * TTL) / 3)
        time.sleep(pause)
        cluster.wait_for(lambda: started_after(cluster, cluster.anchor), 6 * TTL, "fires start")
        where.fail_over()
        up = time.time()
        yield "a server that lacks the last writes has taken over"
        cluster.wait_for(lambda: started_after(cluster, up), 6 * TTL, "fires start again")
        yield f"starts went on {min(mark.wall for mark in started_after(cluster, up)) - up:.2f} s later"
        time.sleep(pause)
        marks = [mark for mark in cluster.marks() if mark.what == "start"]
        highest = max(mark.token for mark in marks if mark.wall < up)
        if any(mark.token <= highest for mark in marks if mark.wall > up):
            yield f"violation: a token not above {highest} after the failover"
        yield from leader_is_replaced(cluster)
        time.sleep(pause)
        for told in ended(cluster):
            if isinstance(told, Verdict):
                assert told.history is not None
                lost = {fire.key for fire in told.history.fires if fire.reason == Reason.DATA_LOSS}
                told.lost_unexplained = [key for key in told.lost_unexplained if key not in lost]
                yield f"{len(lost)} recorded as lost with the old server's data"
            yield told


def leader_is_replaced(cluster: Cluster) -> Iterator[str]:
    """At 1.5 TTL at the most, also where nothing but the lease tells of the death."""
    term, killed = cluster.roster().leader.term, time.monotonic()
    cluster.kill(cluster.leader())
    cluster.wait_for(lambda: cluster.roster().leader.term > term, 3 * TTL, "another replica leads")
    taken = time.monotonic() - killed
    yield f"kill -9 of the leader: taken over after {taken:.2f} s"
    if taken > 1.5 * TTL:
        yield f"violation: taken over after {taken:.2f} s, more than 1.5 TTL"
    cluster.start(1)


def wrong_clocks(where: Place, seconds: float) -> StreamEvent:
    """One replica's clock is ten minutes ahead, another's ten minutes behind. Nothing depends on it."""
    if where.server is None:
        yield "skipped, on one machine there is one clock"
        return
    with ExitStack() as stack:
        clocks = [stack.enter_context(clock()) for _ in range(3)]
        wrong = [each for each in clocks if each is not None]
        if len(wrong) < 3:
            yield "skipped, clocks cannot be set here"
            return
        for each, offset in zip(wrong, (0, 600, -600), strict=True):
            each.set(offset)
        with three(where, envs=[each.env for each in wrong], wrong_clocks=True) as cluster:
            time.sleep(min(20.0, seconds))
            yield f"clocks {', '.join(f'{each.offset:+d} s' for each in wrong)}"
            yield from fences(cluster.processes)
            yield from ended(cluster)


def server_clock(where: Place, seconds: float) -> StreamEvent:
    """The server's clock goes forward by a minute, then back by ten. No healthy run is lost, nothing starts twice,
    and within two TTLs everything works by the new time: claims, leases, and sweeping."""
    if where.server is None:
        yield NO_SERVER
        return
    if where.clock is None:
        yield "skipped, the clock cannot be set here"
        return
    with three(where, rate=20, long=LONG) as cluster:
        for offset in (60, -540):
            key = begin_long(cluster)
            where.clock.set(offset)
            yield f"the server's clock is {offset:+d} s off"
            yield from new_job_is_on_time(cluster, offset)
            yield from killed_is_swept(cluster, sparing=cluster.starts(key)[0].pid)
            cluster.start(1)
            yield from long_has_succeeded(cluster, key)
        yield from nothing_twice(cluster)
        for process in cluster.alive:
            if "fenced" in process.told():
                yield f"violation: a healthy run was fenced out in {process.pid}"


def emptied(where: Place, seconds: float) -> StreamEvent:
    """The server comes back with nothing. What had run does not run again, tokens go on above those given out before,
    the loss is told, and everything goes on by itself."""
    if where.store not in ("valkey", "redis"):
        yield "skipped, a database does not lose all it has by a restart"
        return
    assert where.server is not None
    with three(where) as cluster:
        time.sleep(5)
        where.server.restart(keep_data=False)
        up = time.time()
        yield "the server came back empty"
        cluster.wait_for(lambda: started_after(cluster, up), 6 * TTL, "fires start again")
        time.sleep(10)
        later = started_after(cluster, up)
        before = [mark for mark in cluster.marks() if mark.what == "start" and mark.wall < up]
        yield f"starts went on {min(mark.wall for mark in later) - up:.2f} s later; {len(later)} since"
        highest = max(mark.token for mark in before)
        if any(mark.token <= highest for mark in later):
            yield f"violation: a token not above {highest} after the loss"
        yield from nothing_twice(cluster)
        told = [process.told() for process in cluster.processes]
        if not any("lost" in text and "data" in text for text in told):
            yield "violation: nobody told of the loss"
        due = {f"job{number:05}" for number in range(1000)}
        if missing := due - {mark.key.partition("@")[0] for mark in later}:
            yield f"violation: {len(missing)} jobs did not go on"


def begin_long(cluster: Cluster) -> str:
    key = cluster.trigger("long")
    cluster.wait_for(lambda: cluster.starts(key), 2 * TTL, "the long run starts")
    return key


def long_has_succeeded(cluster: Cluster, key: str) -> Iterator[str]:
    def final() -> bool:
        fire = cluster.reader.fire(key)
        return fire is not None and fire.state.final

    cluster.wait_for(final, LONG + 3 * TTL, "the long run is settled")
    fire = cluster.reader.fire(key)
    assert fire is not None
    if fire.state is not State.SUCCEEDED or len(cluster.starts(key)) != 1:
        yield f"violation: the long run is {fire.state} ({fire.reason}), {len(cluster.starts(key))} starts"
    yield f"the run of {LONG:.0f} s has {fire.state}"


def new_job_is_on_time(cluster: Cluster, offset: int) -> Iterator[str]:
    """What was due in a stretch of time that comes again has run. So a new job shows whether anything is on time."""
    stepped = time.time()
    job = Job(f"after{offset}", "quick", every(seconds=1))
    cluster.reader.ask(lambda store: store.put_jobs([PutJob(job)]))
    time.sleep(4 * TTL)
    cluster.reader.ask(lambda store: store.change_job(ChangeJob(job.id, "remove")))
    late = [
        mark.wall + offset - datetime.fromisoformat(mark.key.rpartition("@")[2]).timestamp()
        for mark in started_after(cluster, stepped + 2 * TTL)
        if mark.key.startswith(f"{job.id}@")
    ]
    if len(late) < TTL or max(late) > ON_TIME:
        yield f"violation: {len(late)} fires due by the new time have started, so late: {late}"
    yield f"fires due by the new time were at most {max(late, default=0.0) * 1000:.0f} ms late"


def killed_is_swept(cluster: Cluster, sparing: int) -> Iterator[str]:
    leader = cluster.leader()
    killed = next(p for p in cluster.alive if p is not leader and p.pid != sparing)
    cluster.kill(killed)
    begun = time.monotonic()

    def swept() -> bool:
        return killed.pid not in {replica.pid for replica in cluster.roster().replicas}

    cluster.wait_for(swept, 4 * TTL, "a killed replica is swept")
    yield f"a killed replica was swept after {time.monotonic() - begun:.2f} s"


def started_after(cluster: Cluster, wall: float) -> list[Mark]:
    return [mark for mark in cluster.marks() if mark.what == "start" and mark.wall > wall]


def nothing_twice(cluster: Cluster) -> Iterator[str]:
    times = Counter(mark.key for mark in cluster.marks() if mark.what == "start")
    yield f"{len(times)} fires started"
    if twice := [key for key, number in times.items() if number > 1]:
        yield f"violation: {len(twice)} started twice, as {twice[:3]}"
