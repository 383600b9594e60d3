"""One span per run, from its start on this replica until it is settled.

A run is the root of its trace. What it follows from is a link: the context that triggered it, and the run that it
repeats. A run that was cut off never ended its span, and so never sent it: the run that repeats it, or the leader that
finds it lost, adds a span to that trace which says so.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from opentelemetry.context import Context, attach
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
    use_span,
)

from fencepost.model import Attempt, FireRecord
from fencepost.model.traces import CALLER, RUN
from fencepost.model.triggers import iso
from fencepost.otel.context import context_of, inside, text_of
from fencepost.runs.events import RUN_EVENTS, Event
from fencepost.runs.failures import Failure, failure_of
from fencepost.runs.tracing import Attributes, Traceable, current_tracer

FAILED = frozenset({"failed", "lost", "fenced", "retrying"})
"""Ends that a trace shows as errors."""
CUT_OFF = "lost"
"""How an attempt is recorded whose replica died."""


class RunSpans:
    """Listens to the events of one scheduler, on its control loop."""

    def __init__(self, tracer: Tracer, namespace: str) -> None:
        self._tracer = tracer
        self._namespace = namespace
        self._open: dict[tuple[str, int], tuple[Span, Traceable | None]] = {}
        """By key and token; a run that an engine carries out has no body here."""

    def heard(self, event: Event) -> None:
        if event.fire is None or event.kind not in RUN_EVENTS:
            return
        if event.kind == "started":
            self._begin(event.fire, event.queued, event.run)
            return
        span, run = self._open.pop((event.fire.key, event.fire.token), (None, None))
        if span is not None:
            self._end(span, run, event)
        elif event.kind == "lost" and event.fire.attempts:
            self._add_end_of(event.fire, event.fire.attempts[-1], event.kind, None)

    def _begin(self, fire: FireRecord, queued: float, run: Traceable | None) -> None:
        span = self._tracer.start_span(
            f"run {fire.job_id}",
            context=Context(),  # a root, whatever is current on the control loop
            kind=SpanKind.INTERNAL if fire.scheduled else SpanKind.CONSUMER,
            attributes={**self._attributes(fire), "fencepost.start_delay": _delay(fire, queued)},
            links=[Link(context, {"fencepost.link": why}) for why, context in _follows_from(fire)],
            start_time=_now(run),
        )
        context = span.get_span_context()
        traceparent = text_of(context)
        if traceparent is None:  # no provider is configured
            return
        if fire.attempts and fire.attempts[-1].outcome == CUT_OFF:
            self._add_end_of(fire, fire.attempts[-1], "cut off", context)
        self._open[fire.key, fire.token] = span, run
        if run is not None:
            variables = contextvars.copy_context()
            variables.run(attach, set_span_in_context(span, Context()))
            variables.run(current_tracer.set, RunTracer(self._tracer))
            run.trace(traceparent, variables)

    def _end(self, span: Span, run: Traceable | None, event: Event) -> None:
        assert event.fire is not None
        span.set_attribute("fencepost.outcome", event.kind)
        if event.fire.reason is not None:
            span.set_attribute("fencepost.reason", event.fire.reason)
        failure = event.ending.failure if event.ending is not None else None
        if failure is not None:
            _add_exception(span, failure)
        if event.kind in FAILED:
            why = failure.line if failure is not None else event.detail or event.fire.why or event.kind
            span.set_status(Status(StatusCode.ERROR, why))
        since = event.ending.settled_after if event.ending is not None else 0.0
        span.end(_now(run, since))

    def _add_end_of(
        self, fire: FireRecord, attempt: Attempt, outcome: str, repeated_by: SpanContext | None
    ) -> None:
        """A span for a run that could not send its own: beside what it had sent, if its context is known."""
        context = context_of((fire.trace or {}).get(RUN))
        links = [Link(repeated_by, {"fencepost.link": "repeated by"})] if repeated_by is not None else []
        span = self._tracer.start_span(
            f"run {fire.job_id} {outcome}",
            context=Context() if context is None else inside(context),
            attributes={
                **self._attributes(fire),
                "fencepost.fire.token": attempt.token,
                "fencepost.replica": attempt.replica,
                "fencepost.outcome": attempt.outcome,
            },
            links=links,
            start_time=_nanoseconds(attempt.started_at),
        )
        span.set_status(Status(StatusCode.ERROR, attempt.error or fire.why or outcome))
        span.end(_nanoseconds(attempt.finished_at))

    def _attributes(self, fire: FireRecord) -> dict[str, str | int | float]:
        return {
            "job.system": "fencepost",
            "fencepost.namespace": self._namespace,
            "fencepost.job.id": fire.job_id,
            "fencepost.fire.key": fire.key,
            "fencepost.fire.due_at": iso(fire.nominal_due_at),
            "fencepost.fire.token": fire.token,
            "fencepost.attempt": fire.attempt,
            "fencepost.replica": fire.replica or "",
        }


class RunTracer:
    """What the body's side of a run calls: see `runs.tracing.Tracer`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def traceparent(self) -> str | None:
        return text_of(get_current_span().get_span_context())

    @contextmanager
    def step(self, name: str, attributes: Attributes) -> Iterator[None]:
        span = self._tracer.start_span(name, attributes=attributes)
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except Exception as error:
                failure = failure_of(error)
                _add_exception(span, failure)
                span.set_status(Status(StatusCode.ERROR, failure.line))
                raise


def _follows_from(fire: FireRecord) -> Iterator[tuple[str, SpanContext]]:
    stored = fire.trace or {}
    for why, name in (("triggered by", CALLER), ("repeats", RUN)):
        if (context := context_of(stored.get(name))) is not None:
            yield why, context


def _add_exception(span: Span, failure: Failure) -> None:
    """With its secrets masked, which `record_exception` would not do."""
    named = {"type": failure.kind, "message": failure.message, "stacktrace": failure.text}
    span.add_event("exception", {f"exception.{name}": value for name, value in named.items() if value})


def _delay(fire: FireRecord, queued: float) -> float:
    """Seconds from due, or from its turn, to started."""
    started = fire.started_at or fire.due_at
    return max(0.0, (started - fire.due_at).total_seconds() - queued)


def _now(run: Traceable | None, ago: float = 0.0) -> int | None:
    """By the clock of the run's replica; None: by OpenTelemetry's."""
    return None if run is None else _nanoseconds(run.clock.wall() - timedelta(seconds=ago))


def _nanoseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000) * 1_000
