"""One open stream of events: what its client asked for, and what it has not been sent yet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from fencepost.insight.views.shapes import event_shape, fire_shape
from fencepost.insight.visible import EVERYTHING, Sight
from fencepost.model import FireRecord, JobEvent
from fencepost.model.values import json_text

KINDS = ("fire", "job", "replica", "leader", "store", "beat")
"""Kinds of events that a client may choose from. `hello` and `reset` are about the stream itself and always sent."""
WAITING = 1_000
"""Events that may wait for a slow listener. With more it gets a `reset`, and its client reads everything again."""
MOST_CHARACTERS = 16_384
"""Sent at once, unless one event alone is longer."""


@dataclass(frozen=True, eq=False)
class StreamEvent:
    """An event. `subject`: the fire, replica or job it is about; a later event of the same kind and subject replaces
    one that has not been sent yet."""

    id: str
    kind: str
    data: Mapping[str, Any]
    at: datetime
    job_id: str | None = None
    subject: str | None = None
    record: FireRecord | JobEvent | None = None
    """What `data` was made of."""

    def seen_by(self, sight: Sight) -> StreamEvent:
        if self.record is None or sight.is_whole:
            return self
        record = sight.fire(self.record) if isinstance(self.record, FireRecord) else sight.event(self.record)
        return self if record is self.record else replace(self, data=shape_of(record), record=record)

    @cached_property
    def text(self) -> str:
        """As it is sent; written once for all listeners."""
        return f"id: {self.id}\nevent: {self.kind}\ndata: {json_text(self.data)}\n\n"


def shape_of(record: FireRecord | JobEvent) -> Mapping[str, Any]:
    if isinstance(record, JobEvent):
        return {"job_id": record.job_id, **event_shape(record)}
    progress = None if record.progress is None else dict(record.progress)
    return {**fire_shape(record), "progress": progress}


class StreamListener:
    def __init__(
        self, jobs: Iterable[str] = (), kinds: Iterable[str] = (), sight: Sight = EVERYTHING
    ) -> None:
        """`jobs` and `kinds`: which events are sent; empty: all. `sight`: what the caller may see."""
        self._jobs = frozenset(jobs)
        self._sight = sight
        self._kinds = frozenset(kinds or KINDS) | {"hello", "reset"}
        self._waiting: dict[object, StreamEvent] = {}
        self._changed = asyncio.Event()
        self._ended = False

    def wants(self, kind: str) -> bool:
        return kind in self._kinds

    def put(self, event: StreamEvent) -> None:
        if event.kind not in self._kinds or (event.job_id and not self._is_for(event.job_id)):
            return
        event = event.seen_by(self._sight)
        key = event if event.subject is None else (event.kind, event.subject)
        self._waiting.pop(
            key, None
        )  # it moves to the end: events are sent in the order of their latest state
        if len(self._waiting) >= WAITING:
            self._waiting.clear()
            reset = StreamEvent(event.id, "reset", {"reason": "fell behind"}, event.at, subject="")
            self._waiting[reset.kind] = reset
        self._waiting[key] = event
        self._changed.set()

    def _is_for(self, job_id: str) -> bool:
        return (not self._jobs or job_id in self._jobs) and self._sight.sees(job_id)

    def end(self) -> None:
        """Ends the stream. Waiting events are not sent any more."""
        self._ended = True
        self._changed.set()

    async def take(self, seconds: float) -> str | None:
        """The text of waiting events, as much as is sent at once. Empty: none came in `seconds`. None: the end."""
        if not self._waiting and not self._ended:
            self._changed.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return ""
        if self._ended:
            return None
        texts, length = list[str](), 0
        while self._waiting:
            key = next(iter(self._waiting))
            text = self._waiting[key].text
            if texts and length + len(text) > MOST_CHARACTERS:
                break
            del self._waiting[key]
            texts.append(text)
            length += len(text)
        return "".join(texts)
