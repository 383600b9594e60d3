"""Trace contexts: OpenTelemetry's objects, and the text that Fencepost stores."""

from __future__ import annotations

from opentelemetry.context import Context, attach
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)

from fencepost.model.traces import clean_traceparent, trace_ids
from fencepost.runs import tracing


def text_of(context: SpanContext) -> str | None:
    """None: it is the context of no span."""
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"


def context_of(traceparent: object) -> SpanContext | None:
    """Of what is stored, which may be anything."""
    text = clean_traceparent(traceparent)
    if text is None:
        return None
    trace_id, span_id = (int(id, 16) for id in trace_ids(text))
    return SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(int(text[-2:], 16)))


def inside(context: SpanContext) -> Context:
    """For spans whose parent this is."""
    return set_span_in_context(NonRecordingSpan(context), Context())


def current_traceparent() -> str | None:
    """Of the span that is current here; else as far as Fencepost knows it."""
    return text_of(get_current_span().get_span_context()) or tracing.current_traceparent()


def continue_trace(traceparent: str) -> None:
    """In a process of its own: what begins here belongs to the run."""
    context = context_of(traceparent)
    if context is not None:
        attach(inside(context))
