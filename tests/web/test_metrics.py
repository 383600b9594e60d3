"""The scrape, read by prometheus-client's own parser."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fencepost import Retry, Scheduler, every
from fencepost.insight.metrics.gauges import Sample
from fencepost.notify import DeliveryFailed, call, failed
from fencepost.web.metrics import Metrics
from tests.web.sample import ended, sample, triggered
from tests.web.serving import QUICK, eventually, service

NAMES = {
    "build_info",
    "notifications",
    "jobs",
    "runs",
    "run_duration_seconds",
    "run_start_delay_seconds",
    "run_queued_seconds",
    "runs_in_progress",
    "job_last_success_timestamp_seconds",
    "job_next_run_timestamp_seconds",
    "job_failures_in_a_row",
    "store_up",
    "outbox_waiting",
    "outbox_set_aside",
    "outbox_oldest_seconds",
    "job_unreadable",
    "data_updated_timestamp_seconds",
    "misfires",
    "skips",
    "retries",
    "lease_lost",
    "fencing_rejections",
    "claims",
    "store_operation_duration_seconds",
    "store_errors",
    "clock_skew_seconds",
    "replicas",
    "leader",
    "loop_degraded",
    "blocking_active",
    "ready",
}


def scraped(client: httpx2.Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name.removeprefix("fencepost_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_every_metric_has_its_name(client: httpx2.Client) -> None:
    families = list(text_string_to_metric_families(client.get("/metrics").text))
    names = {family.name for family in families if not family.name.endswith("_created")}
    assert names == {f"fencepost_{name}" for name in NAMES}
    assert not any("job" in sample.labels for family in families for sample in family.samples)


def test_runs_are_counted_by_outcome() -> None:
    scheduler = Scheduler("memory://", **QUICK)
    failures = iter([True, False])

    @scheduler.job(every(hours=1), id="flaky", retry=Retry(attempts=2, first=0.05))
    async def flaky() -> None:
        if next(failures):
            raise ValueError

    @scheduler.job(every(seconds=0.2), id="paused")
    async def paused() -> None: ...

    with service(scheduler) as client:
        client.post("/api/v1/jobs/paused/pause")
        ended(client, triggered(client, "flaky"))
        flaky_name = (("job_name", "flaky"),)
        found = eventually(
            lambda: (got := scraped(client)).get(("skips_total", (("reason", "paused"),)), 0) >= 4 and got
        )
        assert found["runs_total", (("job_name", "flaky"), ("outcome", "succeeded"))] == 1
        assert found["retries_total", flaky_name] == 1
        assert found["run_duration_seconds_count", flaky_name] == 2
        assert found["run_start_delay_seconds_count", flaky_name] == 1
        assert found["job_last_success_timestamp_seconds", flaky_name] > 1.7e9
        assert found["job_next_run_timestamp_seconds", flaky_name] > 1.7e9
        assert found["leader", ()] == 1
        assert found["ready", ()] == 1
        assert found["replicas", (("state", "alive"),)] == 1
        assert found["store_operation_duration_seconds_count", (("operation", "heartbeat"),)] >= 1
        assert abs(found["clock_skew_seconds", ()]) < 1
        # Neighbours are one row that grows. It is counted once, however often it is told of.
        [row] = client.get("/api/v1/fires?job=paused&state=skipped").json()["items"]
        skipped = found["skips_total", (("reason", "paused"),)]
        assert skipped <= row["count"] <= skipped + 10


def test_scrapes_at_the_same_time_are_whole_and_written_off_the_loop_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs run there, too; 8,000 series take a tenth of a second. Each scrape sets the gauges anew."""
    where: set[str] = set()
    show = Metrics._set_gauges

    def written(registry: CollectorRegistry) -> bytes:
        where.add(threading.current_thread().name)
        time.sleep(0.01)  # others come meanwhile
        return generate_latest(registry)

    def shown(self: Metrics, samples: Iterable[Sample]) -> None:
        where.add(f"not {threading.current_thread().name}")

        def slow() -> Iterator[Sample]:
            time.sleep(0.02)  # with the gauges cleared
            yield from samples

        show(self, slow())

    monkeypatch.setattr("fencepost.web.metrics.generate_latest", written)
    monkeypatch.setattr(Metrics, "_set_gauges", shown)
    with service(sample()) as client, ThreadPoolExecutor(8) as threads:
        first = eventually(lambda: ("jobs", (("state", "idle"),)) in (found := scraped(client)) and found)
        assert not {f"not {name}" for name in where} & where, (
            "the text was written on the server's own thread"
        )
        for found in threads.map(lambda _: scraped(client), range(24)):
            assert found.keys() >= {key for key in first if key[0] in ("jobs", "replicas", "loop_degraded")}


async def test_the_next_run_lies_in_the_past_while_no_replica_decides_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/fencepost.db"
    scheduler = Scheduler(url, **QUICK)

    @scheduler.job(every(seconds=0.5), id="tick")
    async def tick() -> None: ...

    name = (("job_name", "tick"),)
    async with scheduler:
        with_it = await asyncio.to_thread(_next_run, url, name)
        assert with_it > time.time() - 1
    # Planned ahead, and no replica is left.
    planned = await asyncio.to_thread(eventually, lambda: _next_run(url, name) < time.time() - 2)
    assert planned
    first = await asyncio.to_thread(_next_run, url, name)
    assert first == await asyncio.to_thread(_next_run, url, name), "it stays where it was"


def _next_run(url: str, name: tuple[tuple[str, str], ...]) -> float:
    with service(Scheduler(url, **QUICK), replica=False) as client:
        found = eventually(
            lambda: (got := scraped(client)) and ("job_next_run_timestamp_seconds", name) in got and got
        )
        assert found["store_up", ()] == 1
        return float(found["job_next_run_timestamp_seconds", name])


async def test_notices_that_a_channel_cannot_deliver_are_seen(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/fencepost.db", **QUICK)

    async def refuse(notices: object) -> None:
        raise DeliveryFailed("the receiver is down")

    scheduler.notify(call(refuse, name="mine"), on=failed)

    @scheduler.job(every(seconds=0.5), id="broken")
    async def broken() -> None:
        raise ValueError

    def seen() -> bool:
        with service(Scheduler(scheduler.settings.store, **QUICK), replica=False) as client:
            found = scraped(client)
        channel = (("channel", "mine"),)
        return found.get(("outbox_waiting", channel)) == 1 and found["outbox_oldest_seconds", channel] > 0

    async with scheduler:
        await asyncio.to_thread(eventually, seen)
