"""What the API server keeps: objects, the version of the whole, and what happened lately."""

from __future__ import annotations

import copy
import itertools
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
HISTORY = 2_000


class Refused(Exception):
    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


@dataclass(frozen=True)
class Event:
    version: int
    kind: str
    type: str
    object: Object


class State:
    """Used by the server's thread and by the controller's: each method is one step.

    An object is never changed once it is here, but replaced: so it is given out as it is, not copied. With a thousand
    Jobs, copies would take all the time that the server and the controller have."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._objects: dict[str, dict[str, Object]] = {"jobs": {}, "pods": {}}
        self._history: deque[Event] = deque(maxlen=HISTORY)
        self._forgotten = 0
        """Up to which version events are forgotten."""
        self.version = 1
        self.logs: dict[str, bytes] = {}

    def create(self, kind: str, given: Object) -> Object:
        with self._lock:
            name = given["metadata"]["name"]
            if name in self._objects[kind]:
                raise Refused(409, "AlreadyExists", f'{kind} "{name}" already exists')
            made = copy.deepcopy(given)
            made["metadata"]["uid"] = str(uuid.uuid4())
            made.setdefault("status", {})
            return self._put(kind, "ADDED", made)

    def get(self, kind: str, name: str) -> Object:
        with self._lock:
            if name not in self._objects[kind]:
                raise Refused(404, "NotFound", f'{kind} "{name}" not found')
            return self._objects[kind][name]

    def find(self, kind: str, names: Iterable[str]) -> list[Object]:
        """Those of them that are there."""
        with self._lock:
            return [self._objects[kind][name] for name in names if name in self._objects[kind]]

    def all(self, kind: str, selector: str = "") -> tuple[list[Object], int]:
        with self._lock:
            return [each for each in self._objects[kind].values() if selected(each, selector)], self.version

    def change(self, kind: str, name: str, change: Callable[[Object], None]) -> Object | None:
        """None: it is not there."""
        with self._lock:
            if name not in self._objects[kind]:
                return None
            changed = copy.deepcopy(self._objects[kind][name])
            change(changed)
            if changed == self._objects[kind][name]:
                return changed
            return self._put(kind, "MODIFIED", changed)

    def remove(self, kind: str, name: str) -> None:
        with self._lock:
            if (gone := self._objects[kind].pop(name, None)) is not None:
                self._note(kind, "DELETED", copy.deepcopy(gone))

    def since(self, kind: str, version: int) -> list[Event]:
        with self._lock:
            if version < self._forgotten:
                raise Refused(410, "Expired", f"too old resource version: {version} ({self._forgotten})")
            new = itertools.takewhile(lambda event: event.version > version, reversed(self._history))
            return [event for event in new if event.kind == kind][::-1]

    def forget_history(self) -> None:
        """As etcd does when it compacts."""
        with self._lock:
            self._history.clear()
            self._forgotten = self.version

    def _put(self, kind: str, type: str, made: Object) -> Object:
        self._note(kind, type, made)
        self._objects[kind][made["metadata"]["name"]] = made
        return made

    def _note(self, kind: str, type: str, object: Object) -> None:
        self.version += 1
        object["metadata"]["resourceVersion"] = str(self.version)
        if len(self._history) == HISTORY:
            self._forgotten = self._history[0].version
        self._history.append(Event(self.version, kind, type, object))


def selected(object: Object, selector: str) -> bool:
    labels = object["metadata"].get("labels") or {}
    wanted = [part.split("=", 1) for part in selector.split(",") if part]
    return all(labels.get(name) == value for name, value in wanted)
