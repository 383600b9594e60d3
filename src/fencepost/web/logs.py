"""Logs of `fencepost serve`: lines for people, or one JSON object per line. Neither shows a secret."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import Any, Literal

from fencepost.events import RUN_EVENTS, Event
from fencepost.masking import Mask, mask_for
from fencepost.settings import Settings

LogFormat = Literal["text", "json"]


def configure(format: LogFormat, settings: Settings, *, verbose: bool = False) -> None:
    """Everything goes to standard error, through the root logger."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter(format, mask_of(settings)))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.getLogger("fencepost").setLevel(logging.DEBUG if verbose else logging.INFO)


def mask_of(settings: Settings) -> Mask:
    """Also hides secrets that came from files or code."""
    given = {"STORE": settings.store, "AUTH_TOKEN": settings.auth_token, "READ_TOKEN": settings.read_token}
    return mask_for({**os.environ, **{name: value for name, value in given.items() if value}})


class Formatter(logging.Formatter):
    def __init__(self, format: LogFormat, mask: Mask) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")
        self._as_json = format == "json"
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        if not self._as_json:
            return self._mask(super().format(record))
        return json.dumps(self._fields(record), default=str)

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._mask(record.getMessage()),
        }
        event = getattr(record, "fencepost_event", None)
        if isinstance(event, Event):
            fields |= event_fields(event)
        if record.exc_info:
            fields["exception"] = self._mask(self.formatException(record.exc_info))
        return fields


def event_fields(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "event": f"run.{event.kind}" if event.kind in RUN_EVENTS else event.kind,
        "replica": event.replica,
    }
    if fire := event.fire:
        fields |= {"job_id": fire.job_id, "fire": fire.key, "token": fire.token, "attempt": fire.attempt}
        fields |= {"reason": fire.reason} if fire.reason else {}
    return fields
