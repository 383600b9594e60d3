"""Real processes while another server takes the place of their store's: nothing runs twice, all is accounted for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from fencepost.model import Reason
from tests.cluster.harness import Cluster, Reader, Verdict
from tests.servers import RedisServer, ServerMissing, postgres, valkey
from tests.servers.disks import disk
from tests.servers.names import moving_name
from tests.servers.pgbouncer import pgbouncer
from tests.servers.redis_cluster import valkey_cluster
from tests.servers.sentinel import Watched, is_in_step, wait_until, watched
from tests.servers.standby import Standby

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

TTL = 3.0
SETTINGS: dict[str, Any] = {"leader_ttl": TTL, "run_ttl": TTL, "heartbeat": 1.0}
SLOT = key_slot(b"fencepost:default")
BUSY = 40
"""Starts after which a scene goes on."""


def starts_since(cluster: Cluster, wall: float) -> int:
    return sum(mark.what == "start" and mark.wall > wall for mark in cluster.marks())


def go_on(cluster: Cluster, seconds: float = 20.0, number: int = BUSY) -> None:
    since = time.time()
    cluster.wait_for(lambda: starts_since(cluster, since) >= number, seconds, f"{number} more fires start")


def nothing_wrong(cluster: Cluster) -> Verdict:
    """But what the store has lost: that is on record."""
    verdict = cluster.finish(patience=30)
    assert verdict.history is not None
    lost = {fire.key for fire in verdict.history.fires if fire.reason == Reason.DATA_LOSS}
    verdict.lost_unexplained = [key for key in verdict.lost_unexplained if key not in lost]
    assert verdict.violations() == [], f"{verdict}\n{verdict.evidence()}\n{told_by_all(cluster)}"
    return verdict


def outranked(cluster: Cluster, wall: float) -> None:
    """Every token given out since then is above every one before."""
    marks = [mark for mark in cluster.marks() if mark.what == "start"]
    before = {mark.token for mark in marks if mark.wall < wall}
    after = {mark.token for mark in marks if mark.wall > wall}
    assert before
    assert after
    assert max(before) < min(after)


def fail_over_to_stale(primary: RedisServer, follower: RedisServer, promoted: Callable[[], None]) -> float:
    """`follower` has missed the last seconds. When it has taken over."""
    follower.stop()
    time.sleep(2.0)  # what runs now is lost
    primary.kill()
    follower.start()
    promoted()
    return time.time()


def test_sentinel_promotes_a_stale_follower(tmp_path: Path) -> None:
    with (
        watched() as place,
        Cluster(place.url, tmp_path, jobs=10, period=0.5, **SETTINGS) as cluster,
    ):
        cluster.start(3)
        go_on(cluster)
        primary, follower = place.servers
        died = time.time()
        promoted = fail_over_to_stale(primary, follower, lambda: place.wait_for_primary(follower))
        cluster.wait_for(lambda: starts_since(cluster, promoted) > 0, 2 * TTL, "scheduling resumes")
        outranked(cluster, promoted)
        assert died < promoted
        primary.start()
        wait_until(lambda: is_in_step(primary), "the old primary follows")
        go_on(cluster)
        cluster.kill(cluster.leader())
        go_on(cluster)
        verdict = nothing_wrong(cluster)
        assert verdict.states["lost"] > 0, "what ran while nobody followed"


def test_a_stopped_primary_that_sentinel_replaced_misleads_nobody(tmp_path: Path) -> None:
    with (
        watched() as place,
        Cluster(place.url, tmp_path, jobs=10, period=0.5, **SETTINGS) as cluster,
    ):
        cluster.start(3)
        go_on(cluster)
        primary, follower = place.servers
        os.kill(primary.pid, signal.SIGSTOP)
        try:
            place.wait_for_primary(follower)
        finally:
            os.kill(primary.pid, signal.SIGCONT)  # it still believes it is the primary
        go_on(cluster)
        assert_demoted(place, primary)
        go_on(cluster)
        nothing_wrong(cluster)


def assert_demoted(place: Watched, primary: RedisServer) -> None:
    wait_until(lambda: b"role:slave" in primary.ask("INFO replication"), "the old primary is demoted")
    place.wait_for_primary(place.servers[1])


# --- PostgreSQL ----------------------------------------------------------------------------------------------------


def test_a_stale_standby_is_promoted(tmp_path: Path) -> None:
    with postgres(16) as primary, Standby(primary) as standby:
        hosts = ",".join(f"{each.host}:{each.port}" for each in (primary, standby))
        url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
        with Cluster(url, tmp_path, jobs=10, period=0.5, **SETTINGS) as cluster:
            cluster.start(3)
            go_on(cluster)
            standby.wait_in_step()
            standby.stop()
            time.sleep(2.0)  # what runs now is lost
            primary.kill()
            standby.start()
            standby.promote()
            promoted = time.time()
            cluster.wait_for(lambda: starts_since(cluster, promoted) > 0, 4 * TTL, "scheduling resumes")
            outranked(cluster, promoted)
            go_on(cluster)
            cluster.kill(cluster.leader())
            go_on(cluster)
            verdict = nothing_wrong(cluster)
            assert verdict.states["lost"] > 0, "what ran while the standby was away"


def test_a_pooler_leads_to_a_stale_standby(tmp_path: Path) -> None:
    """The connections of the replicas stay: only the answers come from another server."""
    with ExitStack() as stack:
        primary = stack.enter_context(postgres(16))
        standby = stack.enter_context(Standby(primary))
        try:
            pooler = stack.enter_context(pgbouncer(primary, default_pool_size=10))
        except ServerMissing as missing:
            pytest.skip(str(missing))
        cluster = stack.enter_context(Cluster(pooler.url, tmp_path, jobs=10, period=0.5, **SETTINGS))
        cluster.start(3)
        go_on(cluster)
        standby.wait_in_step()
        standby.stop()
        time.sleep(2.0)
        primary.kill()
        standby.start()
        standby.promote()
        pooler.lead_to(standby)
        promoted = time.time()
        cluster.wait_for(lambda: starts_since(cluster, promoted) > 0, 6 * TTL, "scheduling resumes")
        outranked(cluster, promoted)
        go_on(cluster)
        verdict = nothing_wrong(cluster)
        assert verdict.states["lost"] > 0, "what ran while the standby was away"


# --- Redis Cluster -------------------------------------------------------------------------------------------------


def test_a_stale_follower_takes_over_in_a_cluster(tmp_path: Path) -> None:
    with (
        valkey_cluster(followers=3) as place,
        Cluster(place.url, tmp_path, jobs=10, period=0.5, **SETTINGS) as cluster,
    ):
        cluster.start(3)
        go_on(cluster)
        primary, follower = place.owner(SLOT), place.follower(SLOT)
        promoted = fail_over_to_stale(primary, follower, lambda: place.wait_for_primary(follower))
        cluster.wait_for(lambda: starts_since(cluster, promoted) > 0, 2 * TTL, "scheduling resumes")
        outranked(cluster, promoted)
        primary.start()
        wait_until(lambda: is_in_step(primary), "the old primary follows")
        go_on(cluster)
        cluster.kill(cluster.leader())
        go_on(cluster)
        verdict = nothing_wrong(cluster)
        assert verdict.states["lost"] > 0, "what ran while nobody followed"


def test_a_planned_failover_of_a_cluster_under_load(tmp_path: Path) -> None:
    with (
        valkey_cluster(followers=3) as place,
        Cluster(place.url, tmp_path, jobs=10, period=0.5, **SETTINGS) as cluster,
    ):
        cluster.start(3)
        go_on(cluster)
        place.follower(SLOT).ask("CLUSTER FAILOVER")
        place.wait_for_primary(place.follower(SLOT))
        go_on(cluster)
        nothing_wrong(cluster)


def test_a_full_disk_stops_everything_for_a_while(tmp_path: Path) -> None:
    with ExitStack() as stack:
        made = stack.enter_context(disk())
        if made is None:
            pytest.skip("no C compiler (cc)")
        server = stack.enter_context(postgres(16, env=made.env))
        cluster = stack.enter_context(Cluster(server.url, tmp_path, jobs=10, period=0.5, **SETTINGS))
        cluster.start(3)
        go_on(cluster)
        made.fill()
        cluster.wait_for(lambda: "No space left" in told_by_all(cluster), 60, "the disk is full")
        time.sleep(TTL)
        made.free()
        go_on(cluster, 60)
        nothing_wrong(cluster)
        for process in cluster.processes:
            lines = [line for line in process.told().splitlines() if "store.degraded" in line]
            assert len(lines) <= 2, process.told()[:6000]
        assert "free space on the server's disk" in told_by_all(cluster)


def told_by_all(cluster: Cluster) -> str:
    return "\n".join(process.told() for process in cluster.processes)


# --- a name that leads to another server ----------------------------------------------------------------------------


def look_at(cluster: Cluster, url: str) -> None:
    """At this server from now on."""
    cluster.reader.close()
    cluster.reader = Reader(url)


def test_a_name_leads_to_the_promoted_standby(tmp_path: Path) -> None:
    with ExitStack() as stack:
        name = stack.enter_context(moving_name())
        if name is None:
            pytest.skip("no C compiler (cc)")
        primary = stack.enter_context(postgres(16))
        standby = stack.enter_context(Standby(primary, same_port=True))
        name.lead_to(primary)
        url = f"postgresql://postgres@{name.host}:{primary.port}/postgres"
        with Cluster(
            url, tmp_path, reader_url=primary.url, jobs=10, period=0.5, env=name.env, **SETTINGS
        ) as cluster:
            cluster.start(2)
            go_on(cluster)
            primary.execute("alter system set default_transaction_read_only = on")  # it still answers: 25006
            primary.execute("select pg_reload_conf()")
            standby.promote()
            name.lead_to(standby)
            go_on(cluster, 30)
            look_at(cluster, standby.url)
            nothing_wrong(cluster)


def test_a_name_leads_to_the_promoted_follower(tmp_path: Path) -> None:
    with ExitStack() as stack:
        name = stack.enter_context(moving_name())
        if name is None:
            pytest.skip("no C compiler (cc)")
        primary = stack.enter_context(valkey(repl_diskless_sync_delay=0))
        follower = stack.enter_context(valkey(replicaof=f"{primary.host} {primary.port}"))
        wait_until(lambda: is_in_step(follower), "it follows")
        name.lead_to(primary)
        url = f"redis://{name.host}:6379/0"
        with Cluster(
            url, tmp_path, reader_url=primary.url, jobs=10, period=0.5, env=name.env, **SETTINGS
        ) as cluster:
            cluster.start(2)
            go_on(cluster)
            follower.ask("REPLICAOF NO ONE")
            name.lead_to(follower)
            primary.ask(f"REPLICAOF {follower.host} {follower.port}")  # it still answers: READONLY
            go_on(cluster, 30)
            look_at(cluster, follower.url)
            nothing_wrong(cluster)
