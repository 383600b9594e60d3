"""B: the background pipeline service, and the web app that shows how it stands.

All of it is `examples/stop_sync`: as processes where a row is about processes, else in this one, always with its real
sources (a server on loopback), store and database. B14, the compose file, is in `test_b14_compose.py`.
"""

# mypy: no-check-untyped-defs

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import psycopg
import pytest
from playwright.sync_api import Browser, expect

from fencepost import ConfigurationError
from fencepost.model import FireRecord
from fencepost.pipeline.status import read_status
from fencepost.testing import virtual
from stop_sync.flask_web import create_app
from stop_sync.model import Match
from stop_sync.pipeline import NAME
from stop_sync.quality import quality
from stop_sync.served import MAKERS
from stop_sync.settings import Settings
from stop_sync.source_server import SourceServer
from stop_sync.tables import DYNAMIC, STATIC
from stop_sync.web import app_of
from tests.acceptance.stop_sync_system import EXAMPLE, PATIENCE, STOPS, System, phases
from tests.acceptance.test_b14_compose import environment_of
from tests.cluster.harness import Reader
from tests.web.browser import browsing
from tests.web.serving import STARTING, client_of, eventually, served

pytestmark = pytest.mark.cluster

ORDER = [
    "source_probe",
    "atlas_download",
    "gtfs_download",
    "preprocessing",
    "osm_download",
    "matching",
    "problems",
    "import",
    "stats_finalize",
]
FETCHING = ORDER[:5]
IF_CHANGED = ORDER[1:4]
STATUS = "/api/system/pipeline_status"
PACE = 0.3
"""Seconds that each phase of the running system takes longer, so that somebody who looks sees each."""


@pytest.fixture
def sources() -> Iterator[SourceServer]:
    with SourceServer(seed=5, stops=STOPS) as server:
        yield server


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """After its first run, which was a complete one. Nobody changes it."""
    with SourceServer(seed=5, stops=STOPS) as server:
        system = System(tmp_path_factory.mktemp("imported"), server)
        fire = system.ran()
        assert fire.state == "succeeded", fire.error
        with system:
            yield system


@pytest.fixture
def system(tmp_path: Path, sources: SourceServer, imported: System) -> Iterator[System]:
    """One that has been imported already."""
    with System(tmp_path, sources).beginning_with(imported) as system:
        yield system


class Running:
    """Service and web app as processes, on one store."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.service = system.start("stop_sync.service")
        self.web = system.start("uvicorn", "stop_sync.web:app", "--port", "{port}")
        self.client = client_of(self.web.url)
        eventually(lambda: system.has_joined(self.service), STARTING)
        eventually(self.answers, STARTING)

    def answers(self) -> bool:
        assert self.web.popen.poll() is None, self.web.told()
        try:
            return self.client.get("/healthz").status_code == 200
        except httpx2.ConnectError:
            return False

    def status(self) -> dict[str, Any]:
        answer = self.client.get(STATUS)
        assert answer.status_code == 200, answer.text
        says: dict[str, Any] = answer.json()
        return says

    def stored_status(self) -> dict[str, Any]:
        """As the store has it now; the web app shares a reading for a second."""
        says: dict[str, Any] = self.system.reader.ask(lambda store: read_status(store, None))
        return says

    def run(self, status: Callable[[], dict[str, Any]] | None = None, **args: Any) -> list[dict[str, Any]]:
        """Trigger a run, and give every status document seen until it has ended."""
        read = status or self.status
        key = self.system.trigger(**args)
        seen = [read()]
        deadline = time.monotonic() + PATIENCE
        while seen[-1]["run_id"] != key or seen[-1]["status"] == "running":
            assert time.monotonic() < deadline, seen[-1]
            time.sleep(0.02)
            seen.append(read())
        return seen


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, imported: System) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("running")
    with (
        SourceServer(seed=5, stops=STOPS) as server,
        System(folder, server, STOP_SYNC_PACE=PACE).beginning_with(imported) as system,
    ):
        running = Running(system)
        with closing(running.client):
            yield running


@pytest.fixture
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


# --- B1 ---------------------------------------------------------------------------------------------------------


def test_b1_the_service_runs_it_and_the_web_app_only_reads(running: Running) -> None:
    """A dedicated service runs the pipeline; the web app only reads status from the shared store."""
    last = running.run(mode="match-import")[-1]
    fire = running.system.reader.fire(last["run_id"])
    assert fire is not None
    assert fire.state == "succeeded"
    assert {replica.pid for replica in running.system.reader.roster().replicas} == {running.service.popen.pid}
    assert fire.replica is not None
    assert f"-{running.service.popen.pid}-" in fire.replica
    body = {"args": {"mode": "match-import"}}
    refused = running.client.post(f"/fencepost/api/v1/jobs/{NAME}/trigger", json=body)
    assert refused.status_code == 403, "visitors may trigger it"
    page = running.client.get("/stops")
    assert page.status_code == 200
    assert f"of {STOPS}" not in page.text  # platforms, not stops, are counted
    rows = running.system.tables()["stops"]
    assert f"1 to 50 of {len(rows)}" in page.text


def test_b1_the_web_app_serves_while_the_store_is_away(system: System) -> None:
    """Its pages need the database alone; only the status is not there."""
    settings = system.settings(STATE_BACKEND="redis", STATE_REDIS_URL="redis://127.0.0.1:1/0")
    with served(app_of(settings)) as url, client_of(url) as client:
        for page in ("/stops", "/problems?kind=distance&priority=1", "/stops?q=%25&page=999999999999"):
            assert client.get(page).status_code == 200
        assert client.get(STATUS).status_code == 503
        hostile = client.get("/stops", params={"q": '"><script>alert(1)</script>'})
        assert "<script>alert" not in hostile.text


# --- B2 ---------------------------------------------------------------------------------------------------------


def test_b2_rules_choose_the_run_type(system: System) -> None:
    """complete, atlas_cached and atlas_cached_bootstrap by rules; PIPELINE_FORCE_FULL_REFRESH=1 forces complete."""

    def run_type(**variables: object) -> str:
        fire = system.ran(variables)
        assert fire.state == "succeeded", fire.error
        left_out = [name for name, outcome in phases(fire).items() if outcome == "reused"]
        kind = str(system.kept()["run_type"])
        assert left_out == ([] if kind == "complete" else IF_CHANGED)
        return kind

    complete = system.tables()
    assert run_type() == "atlas_cached"
    (system.data / "stops.db").unlink()
    assert run_type() == "atlas_cached_bootstrap"
    assert system.tables() == complete
    assert run_type(PIPELINE_FORCE_FULL_REFRESH="1") == "complete"
    system.sources.switch("gtfs", version=2)
    assert run_type() == "complete"


def test_b2_a_refresh_forced_by_hand_is_complete_whoever_runs_it(system: System) -> None:
    """The variable of the person who starts the run counts, although the service has another value."""
    with system.service():
        forced = System(system.folder, system.sources, PIPELINE_FORCE_FULL_REFRESH="1").by_hand("--service")()
        assert forced.code == 0, forced.err
    assert system.kept()["run_type"] == "complete"


def test_b2_every_static_table_counts(system: System) -> None:
    """A table that a run needs and that is empty makes it a bootstrap: each of them, `operators` too."""
    complete = system.tables()
    for table in STATIC:
        with closing(sqlite3.connect(system.data / "stops.db")) as connection:
            connection.execute(f"delete from {table}")
            connection.commit()
        fire = system.ran()
        assert fire.state == "succeeded", fire.error
        assert system.kept()["run_type"] == "atlas_cached_bootstrap", f"{table} is empty"
        assert system.tables() == complete


def test_b2_preprocessing_has_a_process_of_its_own(system: System) -> None:
    """Reading the sources holds up neither heartbeats nor anybody else."""
    with system.service(STOP_SYNC_PACE=0.5):
        key = system.trigger(force=True)
        system.until(lambda says: says["phase"] == "preprocessing")
        assert eventually(_children_of_ours)
        assert system.ended(key).state == "succeeded"


def _children_of_ours() -> list[str]:
    """The commands of the processes that run bodies."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread, or a child, has ended meanwhile
            children = (task / "children").read_text().split()
            found += [Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ") for child in children]
    return [command for command in found if "fencepost.runs.bodies.child" in command]


def test_b2_memory_is_refused_with_the_reason() -> None:
    """Two processes would see nothing of each other. The README gives the same reason."""
    with pytest.raises(ConfigurationError, match="the service and the web app are two processes") as refused:
        Settings.of({"STATE_BACKEND": "memory"})
    assert "use file or sqlite on one machine" in str(refused.value)
    readme = " ".join((EXAMPLE / "README.md").read_text().split())
    assert "`memory` is refused: the service and the web app are two processes" in readme


def test_b2_what_is_imported_is_right(imported: System) -> None:
    """The pairs in the database, judged by the truth about the invented country."""
    truth = imported.sources.served.truth()
    found = [Match(*row) for row in imported.tables()["matches"]]
    total = quality(found, truth)[-1]
    assert total.precision > 0.97
    assert total.recall > 0.97


# --- B3 ---------------------------------------------------------------------------------------------------------


def test_b3_phases_in_order_and_only_the_import_blocks(running: Running) -> None:
    """Ordered phases, each publishing name and message; only `import` sets `blocking_maintenance`."""
    published: set[str] = set()
    counted = False
    for _ in range(8):  # what is short may pass between two readings of the status: then once more
        during = statuses_of_a_run(running)
        published |= {says["phase"] for says in during}
        counted |= any(says["processed"] is not None and says["total"] for says in during)
        if counted and published.issuperset(ORDER[1:]):
            break
    assert published.issuperset(ORDER[1:])
    assert counted


def statuses_of_a_run(running: Running) -> list[dict[str, Any]]:
    """What the status showed during a run: phases in order, and maintenance in one of them."""
    seen = running.run(running.stored_status, force=True)
    fire = running.system.reader.fire(seen[-1]["run_id"])
    assert fire is not None
    assert phases(fire) == dict.fromkeys(ORDER, "done")
    during = [says for says in seen if says["run_id"] == fire.key and says["status"] == "running"]
    shown = list(dict.fromkeys(says["phase"] for says in during))
    assert [name for name in ["initializing", *ORDER] if name in shown] == shown
    assert all(says["message"] for says in during)
    for says in seen:
        assert says["blocking_maintenance"] is (says["phase"] == "import")
        assert (says["maintenance_started_at"] is not None) is says["blocking_maintenance"]
    return during


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["sqlite", pytest.param("redis", marks=pytest.mark.slow)])
def test_b3_the_overlay_lifts_after_kill_9(
    backend: str, tmp_path: Path, sources: SourceServer, imported: System, request: pytest.FixtureRequest
) -> None:
    """Nobody is left to clear the flag, and it is cleared: at once where a death can be proven, else within a minute,
    with the settings that compose ships. Then another service goes on with the import, and repeats nothing that came
    before. (The same with the restarted service, on Redis and PostgreSQL: test_b14_compose.py.)"""
    shipped = {name: text for name, text in environment_of("scheduler").items() if name in SHIPPED}
    assert shipped.keys() == SHIPPED
    variables = {**shipped, "STATE_BACKEND": backend, "STOP_SYNC_PACE": 1}
    if backend == "redis":
        variables["STATE_REDIS_URL"] = request.getfixturevalue("valkey_url")
    with System(tmp_path, sources, **variables).beginning_with(imported) as system:
        service = system.started_service()
        key = system.trigger(mode="match-import")
        system.until(lambda says: says["blocking_maintenance"] and says["processed"])
        os.kill(service.popen.pid, signal.SIGKILL)
        service.popen.wait()
        killed = time.monotonic()
        limit = AT_ONCE if backend == "sqlite" else A_MINUTE
        says = system.until(lambda says: not says["blocking_maintenance"], limit)
        lifted = time.monotonic() - killed
        assert says["status"] == "failed", "nobody is there to go on"
        before = system.tables()

        with system.service(STOP_SYNC_PACE=0):
            fire = system.ended(key, A_MINUTE)
        assert fire.state == "succeeded", fire.error
        assert fire.progress is not None
        attempts = {each["name"]: each["attempt"] for each in fire.progress["pipeline"]["phases"]}
        assert attempts["matching"] == attempts["problems"] == 1
        assert attempts["import"] == 2
        assert system.tables() == before
        assert system.status()["blocking_maintenance"] is False
    with request.getfixturevalue("capsys").disabled():
        print(f"\n{backend}: overlay gone {lifted:.2f} s after kill -9, with nobody to go on")


SHIPPED = {"PIPELINE_LOCK_TTL_SECONDS", "PIPELINE_LOCK_HEARTBEAT_SECONDS", "STOP_SYNC_PRESENCE_SECONDS"}
A_MINUTE = 60.0
AT_ONCE = 5.0
"""Seconds: far less than any TTL, and enough for a busy machine."""


# --- B4, B5 -----------------------------------------------------------------------------------------------------


def test_b4_match_import_uses_the_files_on_disk(system: System) -> None:
    """Mode `match-import` skips probe and downloads and uses the files on disk."""
    for source in MAKERS:
        system.sources.switch(source, failures=1000)
    before = system.tables()
    fire = system.ran(mode="match-import")
    assert fire.state == "succeeded", fire.error
    assert phases(fire) == {
        **dict.fromkeys(FETCHING[1:], "skipped"),
        **dict.fromkeys(ORDER[5:], "done"),
    }
    assert list(system.sources.asked) == []
    assert system.kept()["run_type"] == "complete"
    assert system.tables() == before


def test_b5_what_has_not_changed_is_not_fetched(system: System) -> None:
    """Ranged GET of one byte through redirects; compared with the last success; in doubt everything runs."""
    sources = system.sources

    def preprocessed(**switches: Any) -> bool:
        sources.asked.clear()
        for name, value in switches.items():
            sources.switch("gtfs", **{name: value})
        fire = system.ran()
        assert fire.state == "succeeded", fire.error
        return phases(fire)["preprocessing"] == "done"

    assert not preprocessed()
    probes = [asked for asked in sources.asked if "osm" not in asked.path]
    assert {(asked.range, asked.status) for asked in probes} == {("bytes=0-0", 302), ("bytes=0-0", 206)}
    assert len(probes) == 4
    assert preprocessed(version=2)
    assert not preprocessed()
    assert preprocessed(failures=3), "a probe that fails must leave the gate open"
    (system.data / "artefacts" / "gtfs_stops.jsonl").unlink()
    assert preprocessed(), "what was made of it is not there"


def test_b5_sources_may_redirect_to_the_hosts_that_are_named(system: System) -> None:
    """Permanent links lead to another host, as the real ones do: refused, unless STOP_SYNC_ALLOW_HOSTS names it."""
    port = system.sources.root.rpartition(":")[2]
    system.sources.files_at = f"http://localhost:{port}"
    system.sources.switch("register", version=2)
    refused = system.ran()
    assert (refused.state, phases(refused)["atlas_download"]) == ("failed", "failed")
    assert "redirects to localhost, which is not in allow_hosts" in system.status()["last_error"]
    allowed: dict[str, object] = {"STOP_SYNC_ALLOW_HOSTS": "data.example.org, LOCALHOST"}
    fire = system.ran(allowed)
    assert (fire.state, phases(fire)["preprocessing"]) == ("succeeded", "done"), fire.error
    fire = system.ran(allowed)
    assert phases(fire)["preprocessing"] == "reused", "the probe follows it, too"
    with pytest.raises(ConfigurationError, match="STOP_SYNC_ALLOW_HOSTS"):
        system.settings(STOP_SYNC_ALLOW_HOSTS="https://data.example.org")


def test_b5_only_a_success_is_remembered_and_by_the_bytes_it_processed(system: System) -> None:
    """A run that preprocessed and failed later changes nothing; a source that changes between probe and download is
    known by what was downloaded."""
    sources = system.sources
    sources.switch("register", version=2)
    sources.switch("osm", failures=1000)
    failed = system.ran()
    assert (failed.state, phases(failed)["preprocessing"]) == ("failed", "done")
    sources.switch("osm", failures=0)
    sources.switch("register", version=1)  # as the last success has seen it; but the files on disk are newer
    again = system.ran()
    assert (again.state, phases(again)["preprocessing"]) == ("succeeded", "done")

    sources.switch("register", version=2)
    with system.service():
        with sources.hold("gtfs"):  # nothing is downloaded before that is probed as well
            sources.asked.clear()
            key = system.trigger()
            eventually(lambda: any(each.path == "/files/register-v2.zip" for each in tuple(sources.asked)))
            sources.switch("register", version=3)
        assert system.ended(key).state == "succeeded"
    assert phases(system.ran())["preprocessing"] == "reused"


# --- B6 ---------------------------------------------------------------------------------------------------------


def test_b6_a_fixed_grid_without_overlap_and_missed_fires_coalesce(system: System) -> None:
    """Interval on a fixed grid, start to start; no overlap; missed fires coalesce, and each is accounted for."""
    start = datetime(2026, 11, 15, 12, tzinfo=UTC)
    with virtual(system.scheduler(), start=start) as t:
        t.advance(hours=49)
        t.assert_ran(NAME, at=[start + timedelta(hours=24), start + timedelta(hours=48)])
        t.stop()
        t.advance(days=5)
        t.start()
        t.advance(minutes=10)
        *_, missed, ran = t.fires(NAME)
        assert (missed.state, missed.reason, missed.count) == ("missed", "coalesced", 4)
        assert (ran.state, ran.due_at) == ("succeeded", start + timedelta(hours=24 * 7))
        assert t.do(t.store.jobs([NAME]))[0].next_run_after(t.now) == start + timedelta(hours=24 * 8)
        assert t.audit().clean


def test_b6_a_long_run_is_not_overlapped(system: System) -> None:
    """A fire that falls due while a run goes on is skipped, and on record."""
    quick = {"PIPELINE_SCHEDULE_INTERVAL_HOURS": 1 / 3600, "STOP_SYNC_PACE": 0.4}
    with system.service(**quick):
        eventually(lambda: {"overlap", "ran"} <= {_became(fire) for fire in _ledger(system)}, PATIENCE)
    fires = _ledger(system)
    ran = sorted(
        (fire.started_at, fire.finished_at) for fire in fires if fire.started_at and fire.finished_at
    )
    for (_, ended), (begun, _) in pairwise(ran):
        assert begun >= ended
    for fire in fires:
        assert fire.due_at.microsecond == 0 or not fire.scheduled, "off the grid"


def _became(fire: FireRecord) -> str | None:
    return "ran" if fire.scheduled and fire.state == "succeeded" else fire.reason


def _ledger(system: System) -> list[FireRecord]:
    now = datetime.now(UTC)
    return [fire for fire in system.reader.fires(now - timedelta(hours=1), now) if fire.state.final]


def test_b6_a_restart_keeps_the_grid_unless_told_otherwise(system: System) -> None:
    """The reset that the document describes is an option: STOP_SYNC_RESTART_GRID=1."""

    def next_run(**variables: object) -> str:
        with system.service(**variables):
            return str(system.status()["next_run_at"])

    first = next_run()
    assert next_run() == first
    asked = datetime.now(UTC)
    anew = datetime.fromisoformat(next_run(STOP_SYNC_RESTART_GRID="1"))
    assert asked < anew - timedelta(hours=24) < datetime.now(UTC)


# --- B7 ---------------------------------------------------------------------------------------------------------


def test_b7_ttl_and_heartbeat() -> None:
    """Run lock: TTL 14400 s, heartbeat TTL/4 clamped to 5–60 s. The TTL bounds the run, not the notice of its death:
    presence expires within a minute whatever the TTL is, and there are three heartbeats in it."""
    for ttl, heartbeat in (("", 60), ("14400", 60), ("120", 30), ("20", 5), ("12", 5), ("8", 5)):
        settings = Settings.of({"PIPELINE_LOCK_TTL_SECONDS": ttl})
        assert settings.lock_ttl.total_seconds() == float(ttl or 14400)
        assert settings.lock_heartbeat.total_seconds() == heartbeat
        assert settings.scheduling["run_ttl"].total_seconds() == 30
        assert settings.scheduling["leader_ttl"].total_seconds() == 30
        assert settings.scheduling["heartbeat"].total_seconds() == min(heartbeat, 10)
    with pytest.raises(ConfigurationError, match="STOP_SYNC_PRESENCE_SECONDS"):
        Settings.of({"STOP_SYNC_PRESENCE_SECONDS": "61"})


def test_b7_a_run_that_exceeds_the_ttl_is_ended(system: System) -> None:
    """PIPELINE_LOCK_TTL_SECONDS is how long a run may take: then it has failed, and the next one may start."""
    with system.service(PIPELINE_LOCK_TTL_SECONDS=1, STOP_SYNC_PACE=60) as scheduler:
        fire = scheduler.sync.trigger(NAME, args={"mode": "match-import"}).wait(PATIENCE)
        assert (fire.state, fire.reason) == ("failed", "timed out")
        assert system.status()["status"] == "failed"
        assert system.status()["blocking_maintenance"] is False


def test_b7_a_run_outlives_its_presence(system: System, valkey_url: str) -> None:
    """The heartbeat renews the lock of a run that takes longer: it is seen to, again and again, for two presences, by
    the same owner with the same token; and another service does not take it."""
    variables = {
        "STATE_BACKEND": "redis",
        "STATE_REDIS_URL": valkey_url,
        "STOP_SYNC_PRESENCE_SECONDS": PRESENCE,
        "PIPELINE_LOCK_HEARTBEAT_SECONDS": PRESENCE / 4,
        "STOP_SYNC_PACE": 60,
    }
    with system.service(**variables) as one, system.service(**variables), Reader(valkey_url) as reader:
        key = one.sync.trigger(NAME, args={"mode": "match-import"}).key
        owner = eventually(lambda: (fire := reader.fire(key)) is not None and fire.replica)

        def renewals() -> int:
            [presence] = [each for each in reader.roster().replicas if each.id == owner]
            return presence.renewals

        begun, first = time.monotonic(), renewals()
        seen = {first}
        while time.monotonic() < begun + 2 * PRESENCE or len(seen) < 5:
            assert time.monotonic() < begun + PATIENCE, f"renewals seen: {sorted(seen)}"
            seen.add(renewals())
            time.sleep(0.02)
        assert max(seen) - first >= 4, "two presences are eight heartbeats; a busy machine is late"
        fire = reader.fire(key)
        assert fire is not None
        assert (fire.state, fire.replica, fire.crashes, fire.attempts) == ("running", owner, 0, ())
        one.sync.cancel(key)
        eventually(lambda: (fire := reader.fire(key)) is not None and fire.state.final, PATIENCE)


PRESENCE = 2.0


def test_b7_a_lost_lock_is_noticed_and_its_owner_can_do_nothing(
    tmp_path: Path, sources: SourceServer, imported: System, valkey_url: str
) -> None:
    """A service that stands still beyond the TTL loses its run; another ends it; the first one comes back, is told, and
    neither renews, releases nor writes anything."""
    variables = {"STATE_BACKEND": "redis", "STATE_REDIS_URL": valkey_url, "STOP_SYNC_PACE": 0.3}
    with System(tmp_path, sources, **variables).beginning_with(imported) as system:
        service = system.started_service()
        key = system.trigger(mode="match-import")
        system.until(lambda says: says["phase"] == "matching")
        os.kill(service.popen.pid, signal.SIGSTOP)
        with system.service(STOP_SYNC_PACE=0):
            fire = system.ended(key)
        assert fire.state == "succeeded", fire.error
        lost, succeeded = fire.attempts
        assert (lost.outcome, succeeded.outcome) == ("lost", "succeeded")
        assert succeeded.token > lost.token
        after, updated = system.tables(), system.status()["data_updated_at"]
        os.kill(service.popen.pid, signal.SIGCONT)
        eventually(lambda: f"fenced {key}" in service.told(), PATIENCE)
        assert system.reader.fire(key) == fire
        assert (system.tables(), system.status()["data_updated_at"]) == (after, updated)


# --- B8 ---------------------------------------------------------------------------------------------------------


def test_b8_the_refresh_scope_is_published(system: System) -> None:
    """run_type and both lists of tables: at start in the status, after success in the durable record."""
    kept = system.kept()
    assert (kept["run_type"], kept["rewritten"], kept["reused"]) == ("complete", [*STATIC, *DYNAMIC], [])
    with system.service(STOP_SYNC_PACE=0.3):
        key = system.trigger()
        says = system.until(lambda says: says["phase"] == "osm_download")
        assert says["run_type"] == "atlas_cached"
        assert says["refresh_scope_tables_rewritten"] == [*DYNAMIC]
        assert says["refresh_scope_tables_reused"] == [*STATIC]
        assert system.kept() == kept, "it has not succeeded yet"
        assert system.ended(key).state == "succeeded"
    kept = system.kept()
    assert (kept["run_type"], kept["rewritten"], kept["reused"]) == ("atlas_cached", [*DYNAMIC], [*STATIC])
    assert kept["values"]["rows"] == {name: len(rows) for name, rows in system.tables().items()}


# --- B9, B10 ----------------------------------------------------------------------------------------------------

FIELDS = set(
    """status phase message blocking_maintenance processed total eta_seconds run_id trigger started_at
    maintenance_started_at updated_at finished_at last_success_at last_error next_run_at data_updated_at run_type
    refresh_scope_tables_rewritten refresh_scope_tables_reused""".split()  # noqa: SIM905
)


@pytest.mark.browser
def test_b9_the_page_tells_how_the_pipeline_stands(running: Running, browser: Browser) -> None:
    """The status document; label, tooltip of the next run, maintenance overlay with elapsed and ETA."""
    before = running.status()
    assert before.keys() >= FIELDS
    page = browser.new_page(timezone_id="America/New_York")
    page.goto(f"{running.web.url}/stops")
    label = page.locator("fencepost-status [part=label]")
    dialog = page.locator("fencepost-status dialog")
    expect(label).to_have_text(f"Data updated: {_shown(before['data_updated_at'])}")
    with client_of(running.web.url) as client:  # what the server rendered, before any script
        rendered = client.get("/stops").text
    assert f">Data updated: {_shown(before['data_updated_at'])}<" in rendered
    assert f"Next run: {_shown(before['next_run_at'])} (" in rendered
    page.locator("fencepost-status [part=info]").hover()
    tooltip = page.locator("fencepost-status [role=tooltip]")
    expect(tooltip).to_contain_text(f"Next run: {_shown(before['next_run_at'])}")
    with closing(sqlite3.connect(running.system.data / "stops.db")) as writer:
        with running.system.sources.hold("osm"):
            running.system.trigger()
            expect(label).to_have_text("Pipeline running in the background")
            writer.execute("begin immediate")  # the import waits until this connection is closed
        expect(dialog).to_be_visible()
        expect(dialog).to_contain_text("Elapsed")
        expect(dialog).to_contain_text("Remaining")
    expect(dialog).to_be_hidden()
    expect(label).to_have_text(re.compile("Data updated: "))
    after = running.status()
    assert after["data_updated_at"] > before["data_updated_at"]
    expect(label).to_have_text(f"Data updated: {_shown(after['data_updated_at'])}")
    expect(page.get_by_text("The data has been updated.")).to_be_visible()
    page.get_by_role("button", name="Show it").click()
    expect(page.get_by_text("The data has been updated.")).to_be_hidden()


def test_b9_the_eta_is_the_one_that_was_set_until_imports_have_been_seen(system: System) -> None:
    """PIPELINE_IMPORT_ETA_SECONDS drives the countdown; after three imports of a type what they took does."""
    with system.service(PIPELINE_IMPORT_ETA_SECONDS=777, STOP_SYNC_PACE=0.1):
        for imports in (1, 2, 3):  # the first was made by the fixture
            key = system.trigger(mode="match-import")
            says = system.until(lambda says: says["blocking_maintenance"])
            assert (says["eta_seconds"] == 777) is (imports < 3), says
            assert system.ended(key).state == "succeeded"


def test_b9_visitors_cause_no_console_error(running: Running, browser: Browser) -> None:
    """Somebody from outside may see the status, and nothing else of the service."""
    page = browser.new_page(extra_http_headers={"X-Forwarded-For": "203.0.113.7"})
    told: list[str] = []
    page.on("console", lambda message: told.append(f"{message.text} {message.location}"))
    with page.expect_response(lambda answer: "/api/v1/events" in answer.url) as refused:
        page.goto(f"{running.web.url}/stops")
    assert refused.value.status == 204
    expect(page.locator("fencepost-status [part=label]")).to_have_text(re.compile("Data updated: "))
    page.wait_for_timeout(500)
    assert told == []


def _shown(moment: str) -> str:
    """In the zone of the settings, whatever the zone of the browser; and it says which."""
    return datetime.fromisoformat(moment).astimezone(ZoneInfo("Europe/Zurich")).strftime("%Y-%m-%d %H:%M %Z")


def test_b9_the_same_document_from_flask(running: Running) -> None:
    """A Flask application with SQLAlchemy has the route, the label's script and its data, and renders label and next
    run with the page; without the store 503, and its pages all the same."""
    client = create_app(running.system.settings()).test_client()
    answer = client.get(STATUS)
    assert answer.status_code == 200
    says: Any = answer.json
    assert says.keys() >= FIELDS
    assert {**says, "now": None} == {**running.status(), "now": None}
    script = client.get("/widget.js")
    assert (script.status_code, script.mimetype) == (200, "text/javascript")
    stops = len(running.system.tables()["stops"])
    page = eventually(lambda: "Next run: " in (text := client.get("/").text) and text)
    assert f"{stops} stops in the register" in page
    assert 'live="off"' in page
    away = running.system.settings(STATE_BACKEND="redis", STATE_REDIS_URL="redis://127.0.0.1:1/0")
    client = create_app(away).test_client()
    assert client.get(STATUS).status_code == 503
    assert f"{stops} stops in the register" in client.get("/").text


def test_b10_the_next_run_is_always_known(tmp_path: Path, sources: SourceServer) -> None:
    """`next_run_at` right at registration, at scheduler start, before and after each run."""

    quick = {"PIPELINE_SCHEDULE_INTERVAL_HOURS": 2 / 3600, "STOP_SYNC_PACE": 0.1}
    with System(tmp_path, sources, **quick) as system, system.service():
        seen = [system.status()]
        while seen[-1]["trigger"] != "scheduled" or seen[-1]["status"] != "idle":
            seen.append(system.until(lambda says: says["now"] > seen[-1]["now"]))
    assert any(says["status"] == "running" for says in seen)
    for says in seen:
        assert says["next_run_at"] is not None
        assert says["next_run_at"] >= says["now"]
    grid = {datetime.fromisoformat(says["next_run_at"]).timestamp() % 2 for says in seen}
    assert len(grid) == 1, "not on one grid"


# --- B11 --------------------------------------------------------------------------------------------------------


def test_b11_the_nine_variables_have_their_defaults() -> None:
    """The nine environment variables of its table, with those defaults."""
    settings = Settings.of({})
    assert settings.interval == timedelta(hours=24)
    assert settings.timezone == "Europe/Zurich"
    assert settings.log_level == "INFO"
    assert settings.import_eta == timedelta(seconds=150)
    assert settings.lock_ttl == timedelta(seconds=14400)
    assert settings.lock_heartbeat == timedelta(seconds=60)
    assert settings.state_redis_url == "redis://redis:6379/0"
    assert settings.state_dir == Path("data/runtime")
    assert settings.store_url == f"file://{Path.cwd()}/data/runtime"
    assert Settings.of({"STATE_BACKEND": "redis"}).store_url == "redis://redis:6379/0"


def test_b11_the_log_level_is_heeded(tmp_path: Path, sources: SourceServer) -> None:
    """PIPELINE_LOG_LEVEL: what a service says of its start at INFO, of its locks at DEBUG, and nothing at ERROR."""
    told = {}
    with ExitStack() as stack:
        systems = {}
        for level in ("ERROR", "INFO", "DEBUG"):
            (tmp_path / level).mkdir()
            system = stack.enter_context(System(tmp_path / level, sources, PIPELINE_LOG_LEVEL=level))
            systems[level], told[level] = system, system.start("stop_sync.service")
        for level, system in systems.items():
            eventually(partial(system.has_joined, told[level]), STARTING)
        eventually(lambda: "renewed leader" in told["DEBUG"].told(), STARTING)
        assert {level: "Ctrl-C stops" in each.told() for level, each in told.items()} == {
            "ERROR": False,
            "INFO": True,
            "DEBUG": True,
        }
        assert "renewed leader" not in told["INFO"].told()
        assert told["ERROR"].told() == ""


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("PIPELINE_SCHEDULE_INTERVAL_HOURS", "0", "give a number from"),
        ("PIPELINE_SCHEDULE_INTERVAL_HOURS", "nan", "give a number from"),
        ("PIPELINE_TIMEZONE", "Europe/Bern", "give a time zone"),
        ("PIPELINE_TIMEZONE", "../../etc/passwd", "give a time zone"),
        ("PIPELINE_LOG_LEVEL", "LOUD", "DEBUG, INFO"),
        ("PIPELINE_IMPORT_ETA_SECONDS", "soon", "give a number from"),
        ("PIPELINE_LOCK_TTL_SECONDS", "-1", "give a number from"),
        ("PIPELINE_LOCK_HEARTBEAT_SECONDS", "9000", "give a number from"),
        ("STATE_BACKEND", "etcd", "redis, postgresql, file, sqlite"),
        ("STATE_REDIS_URL", "http://:s3cret@redis", "begins with redis"),
        ("PIPELINE_FORCE_FULL_REFRESH", "perhaps", "one of 1, true"),
    ],
)
def test_b11_what_is_wrong_is_refused_by_name(variable: str, value: str, told: str) -> None:
    """Errors name the variable and the remedy, and no secret."""
    with pytest.raises(ConfigurationError, match=told) as refused:
        Settings.of({variable: value})
    assert variable in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("variable", ["STATE_DIR", "STOP_SYNC_DATA_DIR", "STOP_SYNC_DATABASE_URL"])
def test_b11_a_folder_that_cannot_be_made_is_refused_by_name(variable: str, tmp_path: Path) -> None:
    """Exit 78 and one line, as for every wrong value."""
    there = tmp_path / "file"
    there.touch()
    value = f"sqlite:///{there}/folder/stops.db" if variable.endswith("URL") else f"{there}/folder"
    refused = run_service(tmp_path, **{variable: value})
    assert refused.returncode == ConfigurationError.exit_code
    assert refused.stderr.splitlines() == [
        f"stop_sync: {variable}: the folder {there}/folder"
        f"{'/artefacts' if 'DATA_DIR' in variable else ''} cannot be made (Not a directory); "
        "give one that may be written to"
    ]


def run_service(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """To its end, for those that do not start."""
    return subprocess.run(
        [sys.executable, "-m", "stop_sync.service"],
        cwd=folder,
        env={"PATH": os.defpath, "PYTHONPATH": f"{EXAMPLE}:{EXAMPLE.parents[1] / 'src'}", **variables},
        capture_output=True,
        text=True,
        timeout=STARTING,
        check=False,
    )


# --- B12 --------------------------------------------------------------------------------------------------------


def test_b12_while_a_run_is_active_another_is_refused(system: System) -> None:
    """ "Another pipeline run is already active", exit 2, here and by the service; usage errors are not also 2."""
    with system.service(STOP_SYNC_PACE=60) as scheduler:
        key = system.trigger()
        here = system.by_hand("--mode", "full", "--trigger", "manual")
        service = system.by_hand("--mode", "match-import", "--trigger", "manual", "--service")
        usage = system.by_hand("--mode", "half")
        for refused in (here(), service()):
            assert refused.code == 2, refused.err
            assert f"Another pipeline run is already active: {key}" in refused.err
        assert usage().code == 64
        scheduler.sync.cancel(key)


def test_b12_exit_codes_tell_the_outcome(system: System, tmp_path: Path, imported: System) -> None:
    """0 success, 1 failure; in the caller's process, or by the service. The status says by what it was triggered."""
    nobody = System(tmp_path / "nobody", system.sources)
    empty = System(tmp_path / "empty", system.sources)
    for each in (nobody, empty):
        each.folder.mkdir()
    with nobody.beginning_with(imported), empty, system.service():
        by_service = system.by_hand("--mode", "match-import", "--trigger", "release", "--service")
        here = nobody.by_hand("--mode", "full", "--trigger", "manual", "--here")
        failed = empty.by_hand("--mode", "match-import", "--trigger", "manual")
        done = by_service()
        assert done.code == 0, done.err
        assert f"-{os.getpid()}-" in done.err, "the service did not run it"
        assert system.status()["trigger"] == "release"
        done = here()
        assert done.code == 0, done.err
        assert f"-{os.getpid()}-" not in done.err
        assert nobody.status()["trigger"] == "manual"
        done = failed()
        assert done.code == 1, done.err
        assert "run --mode full first" in done.err


def test_b12_nothing_waits_for_libraries_that_only_the_matching_needs() -> None:
    """They take longer to import than all the rest: a start, and an answer without the store, should not."""
    modules = "stop_sync.web, stop_sync.service, stop_sync.job_runner, stop_sync.health"
    found = f"import sys, {modules}; print([each for each in ('numpy', 'scipy') if each in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", found], cwd=EXAMPLE, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("words", [("--here",), ("--mode", "match-import"), ("--service",)])
@pytest.mark.parametrize("answer", ["refused", "silence"])
def test_b12_without_the_store_it_ends_with_69(
    words: tuple[str, ...], answer: str, tmp_path: Path, sources: SourceServer
) -> None:
    """Within 10 s, in every mode: where nothing listens, and where something does that never answers. Starting
    Python with all that is imported takes two of them, and longer beside busy neighbours: that is measured before and
    after, with a setting that is refused. Where something listens it begins with the first connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        server.settimeout(STARTING)
        if answer == "refused":
            server.close()
        variables = {"STATE_BACKEND": "redis", "STATE_REDIS_URL": f"redis://127.0.0.1:{port}/0"}
        with System(tmp_path, sources, **variables) as system:

            def starting() -> float:
                begun = time.monotonic()
                refused = System(tmp_path, sources, PIPELINE_TIMEZONE="Europe/Bern").by_hand(*words)()
                assert refused.code == 78, refused.err
                return time.monotonic() - begun

            before, started = starting(), time.monotonic()
            by_hand = system.by_hand(*words)
            with ExitStack() as open_until_the_end:
                if answer == "silence":
                    open_until_the_end.enter_context(server.accept()[0])
                    started = time.monotonic()
                ended = by_hand()
            took = time.monotonic() - started
            assert ended.code == 69, ended.err
            assert f"127.0.0.1:{port}" in ended.err
            assert took < 8 + max(before, starting())


# --- B13 --------------------------------------------------------------------------------------------------------

REFUSING = {
    "sqlite": [
        "create trigger full before insert on problems begin select raise(abort, 'no space left'); end"
    ],
    "postgresql": [
        "create function no_space() returns trigger language plpgsql as $$begin raise 'no space left'; end$$",
        "create trigger full_disk before insert on problems execute function no_space()",
    ],
}


@pytest.mark.parametrize(("backend", "database"), [("file", "sqlite"), ("redis", "postgresql")])
def test_b13_a_failing_import_leaves_everything_as_it_was(
    backend: str,
    database: str,
    tmp_path: Path,
    sources: SourceServer,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Traceback logged, status `failed` with `last_error`, lock released, previous data intact, `data_updated_at`
    unchanged; the next one tries afresh. The last of the tables refuses its rows: what came before is undone."""
    variables = {"STATE_BACKEND": backend}
    if backend == "redis":
        variables["STATE_REDIS_URL"] = request.getfixturevalue("valkey_url")
    if database == "postgresql":
        variables["STOP_SYNC_DATABASE_URL"] = request.getfixturevalue("postgres_url")
    with System(tmp_path, sources, **variables) as system:
        assert (system.ran()).state == "succeeded"
        before, updated = system.tables(), system.status()["data_updated_at"]
        url = system.settings().database_url
        with closing(
            sqlite3.connect(url.removeprefix("sqlite:///")) if database == "sqlite" else psycopg.connect(url)
        ) as connection:
            for statement in REFUSING[database]:
                connection.execute(statement)
            connection.commit()
            for source in MAKERS:
                sources.switch(source, version=2)
            caplog.clear()
            failed = system.ran()
            assert (failed.state, phases(failed)["import"]) == ("failed", "failed")
            says = system.status()
            assert (says["status"], says["phase"]) == ("failed", "failed")
            assert "no space left" in says["last_error"]
            assert says["blocking_maintenance"] is False
            assert says["data_updated_at"] == updated
            assert system.tables() == before
            errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
            assert any("phase import failed" in record.getMessage() for record in errors)
            [traceback] = [record.exc_text for record in errors if record.exc_info]
            assert "in import_" in (traceback or ""), "it leads to the line that failed"
            name = "full" if database == "sqlite" else "full_disk on problems"
            connection.execute(f"drop trigger {name}")
            connection.commit()
        again = system.ran()
        assert (again.state, again.attempt, set(phases(again).values())) == ("succeeded", 1, {"done"})
        assert system.tables() != before
        assert system.status()["data_updated_at"] > updated


def test_b13_half_a_file_is_never_seen(system: System) -> None:
    """A download that is cut off leaves the old file as it is, and is gone on with; one that fails fails the run."""
    raw = system.data / "raw" / "osm.xml"
    old = raw.read_bytes()
    system.sources.switch("osm", version=2, cuts=1000)
    failed = system.ran()
    assert (failed.state, phases(failed)["osm_download"]) == ("failed", "failed")
    assert raw.read_bytes() == old
    system.sources.switch("osm", cuts=0)
    assert (system.ran()).state == "succeeded"
    assert raw.read_bytes() == system.sources.served.body("osm").content
