"""Where a run meets tracing. The core knows trace contexts as text; spans belong to an integration (`fencepost.otel`).

An integration subscribes to the events. With `started` it gets the run, and gives its body a context
(`Run.trace`); inside of that context it has set a `Tracer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import Context, ContextVar
from typing import Protocol

from fencepost.clock import Clock
from fencepost.model import integrations
from fencepost.runs.fire import Fire, traceparent_of_fire
from fencepost.store.base import Claim

Attributes = Mapping[str, str | int | float | bool]


class Traceable(Protocol):
    """A run that is about to start, as an integration sees it."""

    @property
    def claim(self) -> Claim: ...

    @property
    def clock(self) -> Clock: ...

    def trace(self, traceparent: str, variables: Context) -> None:
        """Have its body run in this context, and keep the trace context for whatever repeats it."""


class Tracer(Protocol):
    """Of one run; used on the threads of its body."""

    def traceparent(self) -> str | None:
        """The context that is current here: of the run's span, or of one that the body has begun."""

    def step(self, name: str, attributes: Attributes) -> AbstractContextManager[object]:
        """A span around a part of the body."""


current_tracer: ContextVar[Tracer | None] = ContextVar("fencepost_current_tracer", default=None)
given_traceparent: ContextVar[str | None] = ContextVar("fencepost_given_traceparent", default=None)
"""What a request has brought along: in the header of HTTP, or in the environment of a command."""


def current_traceparent() -> str | None:
    """The trace context here; in a run that is not traced, that of whatever triggered it."""
    tracer = current_tracer.get()
    found = tracer.traceparent() if tracer is not None else None
    return found or traceparent_of_fire() or given_traceparent.get()


def continue_trace(fire: Fire) -> None:
    """In a process that runs the body of a traced run: spans made here belong to that trace. By the integrations that
    are installed."""
    if fire.traceparent is not None:
        for name in integrations.registered("fencepost.traces"):
            with suppress(ImportError):  # an extra that is not installed
                integrations.load("fencepost.traces", name)(fire.traceparent)


def step(name: str, attributes: Attributes) -> AbstractContextManager[object]:
    tracer = current_tracer.get()
    return nullcontext() if tracer is None else tracer.step(name, attributes)
