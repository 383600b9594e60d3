"""Logs of `fencepost run` and `serve`: lines for people, or one JSON object per line. Neither shows a secret."""

from __future__ import annotations

import copy
import json
import logging
import os
from datetime import UTC, datetime
from typing import Any, Literal

from fencepost.model.traces import RUN, trace_ids
from fencepost.runs.events import RUN_EVENTS, Ending, Event
from fencepost.runs.masking import Mask, mask_for
from fencepost.runs.tracing import current_traceparent
from fencepost.settings import Settings

LogFormat = Literal["text", "json"]
LINE = "%(asctime)s %(levelname)-7s %(message)s"


def begin(format: LogFormat) -> Formatter:
    """Before the target is imported, so that what it logs meanwhile is formatted, too. A target that configures logging
    by itself keeps what it has configured."""
    handler = logging.StreamHandler()
    formatter = Formatter(format, mask_for(os.environ))
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    return formatter


def configure(format: LogFormat, settings: Settings, *, verbose: bool = False) -> None:
    """Everything goes to standard error, through the root logger."""
    handler = logging.StreamHandler()
    formatter = Formatter(format, mask_of(settings))
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    apply(settings, formatter, verbose=verbose)


def apply(settings: Settings, formatter: Formatter, *, verbose: bool = False) -> None:
    """The level and the secrets of these settings. Other libraries log nothing below `info`."""
    level = logging.DEBUG if verbose else logging.getLevelNamesMapping()[settings.log_level.upper()]
    logging.getLogger().setLevel(max(level, logging.INFO))
    logging.getLogger("fencepost").setLevel(level)
    formatter.mask = mask_of(settings)
    formatter.tracebacks = level <= logging.DEBUG


def mask_of(settings: Settings) -> Mask:
    """Also hides secrets that came from files or code."""
    given = {"STORE": settings.store, "AUTH_TOKEN": settings.auth_token, "READ_TOKEN": settings.read_token}
    return mask_for({**os.environ, **{name: value for name, value in given.items() if value}})


class Formatter(logging.Formatter):
    def __init__(self, format: LogFormat, mask: Mask, line: str = LINE) -> None:
        super().__init__(line)
        self._as_json = format == "json"
        self.mask = mask
        self.tracebacks = False
        """Whether a line about a failed run is followed by the traceback. It is with the fire in any case."""

    def format(self, record: logging.LogRecord) -> str:
        if self._as_json:
            return json.dumps(self._fields(record), default=str)
        if record.exc_info and not self.tracebacks and hasattr(record, "fencepost_event"):
            record = copy.copy(record)  # other handlers get the traceback that is left out here
            record.exc_info = record.exc_text = None
        return self.mask(super().format(record))

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.mask(record.getMessage()),
        }
        event = getattr(record, "fencepost_event", None)
        if isinstance(event, Event):
            fields |= event_fields(event)
        fields |= getattr(record, "fencepost_fields", {})
        fields |= _trace_fields(event)
        if record.exc_info:
            fields["exception"] = self.mask(self.formatException(record.exc_info))
        return fields


def _trace_fields(event: object) -> dict[str, str]:
    """Of the run that a line is about, or that wrote it."""
    if isinstance(event, Event) and event.fire is not None:
        traceparent = (event.fire.trace or {}).get(RUN)
    else:
        traceparent = current_traceparent()
    return (
        {} if traceparent is None else dict(zip(("trace_id", "span_id"), trace_ids(traceparent), strict=True))
    )


def event_fields(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "event": f"run.{event.kind}" if event.kind in RUN_EVENTS else event.kind,
        "replica": event.replica,
    }
    if fire := event.fire:
        fields |= {"job_id": fire.job_id, "fire": fire.key, "token": fire.token, "attempt": fire.attempt}
        fields |= {"reason": fire.reason} if fire.reason else {}
    return fields | (ending_fields(event.ending) if event.ending else {})


def ending_fields(ending: Ending) -> dict[str, Any]:
    failure = ending.failure
    fields = {
        "duration_seconds": None if ending.seconds is None else round(ending.seconds, 6),
        "attempts": ending.attempts if ending.attempts > 1 else None,
        "retry_in_seconds": None if ending.retry_in is None else round(ending.retry_in, 3),
        "error": failure and failure.message,
        "error_type": (failure and failure.kind) or None,
        "exit_code": failure and failure.exit_code,
    }
    return {name: value for name, value in fields.items() if value is not None}
