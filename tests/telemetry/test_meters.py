"""The metrics through OTLP: the same as those of Prometheus."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from fencepost import Scheduler, every
from fencepost.insight.metrics.definitions import METRICS, PREFIX
from fencepost.otel import instrument
from tests.telemetry.receiver import Receiver, receiving
from tests.web.serving import QUICK, eventually, service
from tests.web.test_metrics import scraped

LAST = "fencepost_job_last_success_timestamp_seconds"
"""Is there once the store was read after the run."""
SELDOM = {
    "notifications",
    "outbox_waiting",
    "outbox_set_aside",
    "outbox_oldest_seconds",
    "retries",
    "misfires",
    "skips",
    "lease_lost",
    "fencing_rejections",
    "store_errors",
    "run_queued_seconds",
    "job_unreadable",
    "blocking_active",
    "data_updated_timestamp_seconds",
}
"""Metrics without series where nothing goes wrong, and there are no pipelines."""


def points(receiver: Receiver, name: str) -> dict[tuple[str, ...], Any]:
    sent = receiver.metrics[name]
    return {
        tuple(sorted(each.value.string_value for each in point.attributes)): point
        for point in getattr(sent, sent.WhichOneof("data")).data_points
    }


@pytest.mark.parametrize("served", [True, False])
async def test_otlp_has_what_prometheus_has(served: bool) -> None:
    with receiving() as receiver:
        exporter = OTLPMetricExporter(f"{receiver.url}/v1/metrics")
        provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)])
        scheduler = Scheduler("memory://", **QUICK)
        instrument(scheduler, meter_provider=provider)

        @scheduler.job(every(days=300), id="job")
        async def job() -> None: ...

        if served:
            with service(scheduler) as client:
                client.post("/api/v1/jobs/job/trigger")
                found = eventually(
                    lambda: (
                        (got := scraped(client)).get(
                            ("runs_total", (("job_name", "job"), ("outcome", "succeeded")))
                        )
                        and got.get(("job_last_success_timestamp_seconds", (("job_name", "job"),)))
                        and got
                    )
                )
                eventually(lambda: provider.force_flush() and LAST in receiver.metrics)
            assert found["store_operation_duration_seconds_count", (("operation", "claim_fires"),)] > 0
            next_run = points(receiver, "fencepost_job_next_run_timestamp_seconds")["job",].as_double
            assert next_run == pytest.approx(found["job_next_run_timestamp_seconds", (("job_name", "job"),)])
        else:
            async with scheduler:
                await (await scheduler.trigger("job")).wait(timeout=120)
                await asyncio.to_thread(
                    eventually, lambda: provider.force_flush() and LAST in receiver.metrics
                )
        provider.shutdown()
    assert set(receiver.metrics) == {PREFIX + metric.name for metric in METRICS if metric.name not in SELDOM}
    assert points(receiver, "fencepost_runs")["job", "succeeded"].as_int == 1
    duration = points(receiver, "fencepost_run_duration_seconds")["job",]
    [metric] = [each for each in METRICS if each.name == "run_duration_seconds"]
    assert (duration.count, tuple(duration.explicit_bounds)) == (1, metric.buckets)
    assert receiver.metrics["fencepost_run_duration_seconds"].unit == "s"
    assert points(receiver, "fencepost_leader")[()].as_double == 1
