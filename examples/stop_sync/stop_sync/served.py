"""What the source server has to serve: the versions of each source, and how it misbehaves."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import lru_cache
from typing import Any, NamedTuple

from stop_sync.data import Truth, World, gtfs_zip, osm_xml, register_zip, truth

MAKERS = {"register": register_zip, "gtfs": gtfs_zip, "osm": osm_xml}
MOST_VERSIONS = 50
MOST_TIMES = 1_000_000
MOST_SLOW_SECONDS = 60.0
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
"""When version 1 was published; each later one a day after. Nothing here depends on what time it really is."""


@dataclass(frozen=True)
class Switches:
    """How one source behaves."""

    version: int = 1
    failures: int = 0
    """So many answers will be `status` and nothing else."""
    status: int = 502
    cuts: int = 0
    """So many downloads will end half-way. A probe of one byte has no half and is left alone."""
    slow_seconds: float = 0.0
    """So long an answer takes, piece by piece."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("version", 1, MOST_VERSIONS),
            ("failures", 0, MOST_TIMES),
            ("status", 400, 599),
            ("cuts", 0, MOST_TIMES),
            ("slow_seconds", 0, MOST_SLOW_SECONDS),
        ):
            value = getattr(self, name)
            kinds = (int, float) if name == "slow_seconds" else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
                raise ValueError(f"{name} must be a number from {least} to {most}, not {value!r}")


class Body(NamedTuple):
    content: bytes
    etag: str
    last_modified: str


class Served:
    """The sources of one seed. Requests come in many threads, so what is counted down is counted under a lock."""

    def __init__(self, seed: int, stops: int) -> None:
        self._seed, self._stops = seed, stops
        self._switches = {name: Switches() for name in MAKERS}
        self._lock = threading.Lock()

    def switches(self) -> dict[str, Switches]:
        with self._lock:
            return dict(self._switches)

    def switch(self, source: str, **changed: Any) -> Switches:
        known = {field.name for field in fields(Switches)}
        with self._lock:
            if source not in self._switches or not changed.keys() <= known:
                raise ValueError(f"switch one of {', '.join(MAKERS)}, and of it {', '.join(sorted(known))}")
            self._switches[source] = replace(self._switches[source], **changed)
            return self._switches[source]

    def next_failure(self, source: str) -> int | None:
        """The status that this answer must have."""
        with self._lock:
            now = self._switches[source]
            if not now.failures:
                return None
            self._switches[source] = replace(now, failures=now.failures - 1)
            return now.status

    def next_cut(self, source: str) -> bool:
        with self._lock:
            now = self._switches[source]
            self._switches[source] = replace(now, cuts=max(0, now.cuts - 1))
            return now.cuts > 0

    def file_name(self, source: str) -> str:
        """Another one for each version."""
        return f"{source}-v{self.switches()[source].version}.{'xml' if source == 'osm' else 'zip'}"

    def body(self, source: str) -> Body:
        return _body(source, self._seed, self._stops, self.switches()[source].version)

    def truth(self) -> Truth:
        """Of the versions that are served now."""
        now = self.switches()
        register, osm = (_world(self._seed, self._stops, now[each].version) for each in ("register", "osm"))
        return truth(register, osm)


@lru_cache(maxsize=8)
def _world(seed: int, stops: int, version: int) -> World:
    return World(seed, stops, version)


@lru_cache(maxsize=16)
def _body(source: str, seed: int, stops: int, version: int) -> Body:
    content = MAKERS[source](_world(seed, stops, version))
    return Body(
        content,
        f'"{hashlib.sha256(content).hexdigest()[:16]}"',
        format_datetime(FIRST_DAY + timedelta(days=version - 1), usegmt=True),
    )
