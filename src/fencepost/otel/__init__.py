"""OpenTelemetry: a span per run, and the metrics through OTLP.

    from fencepost.otel import instrument
    instrument(scheduler)

It uses the providers that the application has configured. A service without code of its own sets
`FENCEPOST_TELEMETRY=otel` and the variables of OpenTelemetry (docs/telemetry.md).
"""

from __future__ import annotations

from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.trace import TracerProvider, get_tracer_provider

from fencepost import __version__
from fencepost.otel.context import current_traceparent
from fencepost.otel.meters import Meters
from fencepost.otel.spans import RunSpans
from fencepost.scheduler.scheduler import Scheduler

__all__ = ["instrument"]


def instrument(
    scheduler: Scheduler,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Once, before the scheduler is started. Without providers, those of OpenTelemetry's API are used: what
    is configured there later counts, too."""
    tracers, meters = tracer_provider or get_tracer_provider(), meter_provider or get_meter_provider()
    spans = RunSpans(tracers.get_tracer("fencepost", __version__), scheduler.settings.namespace)
    scheduler.events.subscribe(spans.heard)
    scheduler.trace_source = current_traceparent
    Meters(meters.get_meter("fencepost", __version__), scheduler)


def from_environment(scheduler: Scheduler) -> None:
    """What `FENCEPOST_TELEMETRY=otel` does."""
    from fencepost.otel.sdk import (
        configure,
    )  # which applications that configure the SDK themselves need not have

    configure()
    instrument(scheduler)
