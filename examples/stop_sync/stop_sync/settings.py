"""What the environment says. Everything is checked here, once, before anything starts; errors name the variable.

The first nine are those of the system that this example follows, with its defaults.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fencepost import ConfigurationError
from fencepost.web.auth import is_loopback

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
BACKENDS = ("redis", "postgresql", "file", "sqlite")
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
HEARTBEATS_SECONDS = (5.0, 60.0)
"""Between these lies the distance of two heartbeats, if it is not given."""
LONGEST_TTL_SECONDS = 86_400
PRESENCE_SECONDS = (0.5, 60.0)
"""How long a service may be silent before it counts as dead: never more than a minute, however long a run may take."""
HEARTBEATS_PER_PRESENCE = 3
HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
SOURCES = "http://127.0.0.1:8790"
"""Where `python -m stop_sync.source_server` serves."""


@dataclass(frozen=True)
class Settings:
    interval: timedelta
    timezone: str
    log_level: str
    import_eta: timedelta
    lock_ttl: timedelta
    """How long a run may take. It says nothing about how soon the death of a service is noticed."""
    lock_heartbeat: timedelta
    presence: timedelta
    """A service that has not renewed its presence for so long is dead: its run goes on elsewhere."""
    state_backend: str
    state_redis_url: str
    state_postgresql_url: str
    state_dir: Path
    force_full_refresh: bool
    restart_grid: bool
    """Each start of the service begins a new grid, and what was due before is forgotten."""
    data_dir: Path
    database_url: str
    atlas_url: str
    gtfs_url: str
    osm_url: str
    allow_hosts: tuple[str, ...]
    """Where sources may redirect to, beside their own hosts."""
    allow_private: bool
    """Whether sources may lie in internal networks. Loopback, if it is named, always may."""
    retry_after: timedelta
    """Before a source that failed is asked for the second time; before the third twice as long."""
    pace: timedelta
    """So much longer each phase takes, for people who watch."""
    hold: Path | None
    """The phase that this file is named after waits as long as the file is there, for demonstrations."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        read = _Reader(environment)
        ttl = read.seconds("PIPELINE_LOCK_TTL_SECONDS", "14400", 1, LONGEST_TTL_SECONDS)
        data_dir = Path(read.text("STOP_SYNC_DATA_DIR", "data"))
        return cls(
            interval=read.hours("PIPELINE_SCHEDULE_INTERVAL_HOURS", "24", 1 / 3600, 8760),
            timezone=read.zone("PIPELINE_TIMEZONE", "Europe/Zurich"),
            log_level=read.one_of("PIPELINE_LOG_LEVEL", "INFO", LOG_LEVELS, str.upper),
            import_eta=read.seconds("PIPELINE_IMPORT_ETA_SECONDS", "150", 0, 86_400),
            lock_ttl=ttl,
            lock_heartbeat=_heartbeat(read, ttl),
            presence=read.seconds("STOP_SYNC_PRESENCE_SECONDS", "30", *PRESENCE_SECONDS),
            state_backend=_backend(read),
            state_redis_url=read.url(
                "STATE_REDIS_URL", "redis://redis:6379/0", ("redis", "rediss", "valkey")
            ),
            state_postgresql_url=read.url(
                "STATE_POSTGRESQL_URL", "postgresql://stop_sync@postgres:5432/stop_sync", ("postgresql",)
            ),
            state_dir=Path(read.text("STATE_DIR", str(data_dir / "runtime"))),
            force_full_refresh=read.switch("PIPELINE_FORCE_FULL_REFRESH"),
            restart_grid=read.switch("STOP_SYNC_RESTART_GRID"),
            data_dir=data_dir,
            database_url=read.url(
                "STOP_SYNC_DATABASE_URL", f"sqlite:///{data_dir}/stops.db", ("sqlite", "postgresql")
            ),
            atlas_url=read.url("STOP_SYNC_ATLAS_URL", f"{SOURCES}/permalink/register", ("http", "https")),
            gtfs_url=read.url("STOP_SYNC_GTFS_URL", f"{SOURCES}/permalink/gtfs", ("http", "https")),
            osm_url=read.url("STOP_SYNC_OSM_URL", f"{SOURCES}/osm.xml", ("http", "https")),
            allow_hosts=read.hosts("STOP_SYNC_ALLOW_HOSTS"),
            allow_private=read.switch("STOP_SYNC_ALLOW_PRIVATE"),
            retry_after=read.seconds("STOP_SYNC_RETRY_SECONDS", "5", 0.01, 600),
            pace=read.seconds("STOP_SYNC_PACE", "0", 0, 3600),
            hold=Path(hold) if (hold := read.text("STOP_SYNC_HOLD", "")) else None,
        )

    @property
    def store_url(self) -> str:
        """Where the runs are coordinated and their status lies."""
        return {
            "redis": self.state_redis_url,
            "postgresql": self.state_postgresql_url,
            "file": f"file://{self.state_dir.absolute()}",
            "sqlite": f"sqlite:///{self.state_dir.absolute()}/fencepost.db",
        }[self.state_backend]

    @property
    def scheduling(self) -> dict[str, Any]:
        """As Fencepost's settings. Presence and leadership expire after `presence`; `lock_ttl` bounds the run instead,
        as the timeout of its job. A heartbeat is never rarer than three in a presence."""
        return {
            "store": self.store_url,
            "run_ttl": self.presence,
            "heartbeat": min(self.lock_heartbeat, self.presence / HEARTBEATS_PER_PRESENCE),
            "leader_ttl": self.presence,
        }

    def make_folders(self) -> None:
        """Service and web app may start in any order."""
        folders = {
            self.artefacts: "STOP_SYNC_DATA_DIR",
            self.raw: "STOP_SYNC_DATA_DIR",
            self.state_dir: "STATE_DIR",
        }
        if self.database_url.startswith("sqlite:"):
            folders[Path(self.database_url.removeprefix("sqlite:///")).parent] = "STOP_SYNC_DATABASE_URL"
        for folder, name in folders.items():
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigurationError(
                    f"{name}: the folder {folder} cannot be made ({error.strerror}); give one that may be written to"
                ) from None

    @property
    def artefacts(self) -> Path:
        return self.data_dir / "artefacts"

    @property
    def raw(self) -> Path:
        """Downloads."""
        return self.data_dir / "raw"

    def private_allowed(self, url: str) -> bool:
        return self.allow_private or is_loopback(urlsplit(url).hostname or "")


class _Reader:
    """Variables by name. An empty one counts as not set."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str, default: str) -> str:
        return self._environment.get(name, "").strip() or default

    def seconds(self, name: str, default: str, least: float, most: float) -> timedelta:
        return timedelta(seconds=self._number(name, default, least, most))

    def hours(self, name: str, default: str, least: float, most: float) -> timedelta:
        return timedelta(hours=self._number(name, default, least, most))

    def _number(self, name: str, default: str, least: float, most: float) -> float:
        text = self.text(name, default)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise ConfigurationError(f"{name}={text!r}: give a number from {least:.4g} to {most:g}")
        return number

    def zone(self, name: str, default: str) -> str:
        text = self.text(name, default)
        try:
            return ZoneInfo(text).key
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigurationError(f"{name}={text!r}: give a time zone such as {default}") from None

    def one_of(self, name: str, default: str, known: tuple[str, ...], spelled: Callable[[str], str]) -> str:
        text = spelled(self.text(name, default))
        if text not in known:
            raise ConfigurationError(f"{name}={text!r}: give one of {', '.join(known)}")
        return text

    def switch(self, name: str) -> bool:
        return self.one_of(name, NO[0], (*YES, *NO), str.lower) in YES

    def hosts(self, name: str) -> tuple[str, ...]:
        """Names of hosts between commas."""
        hosts = tuple(host.strip().lower() for host in self.text(name, "").split(",") if host.strip())
        for host in hosts:
            if not HOST.fullmatch(host):
                raise ConfigurationError(
                    f"{name}: {host!r} is no host; give names such as data.example.org,cdn.example.org"
                )
        return hosts

    def url(self, name: str, default: str, schemes: tuple[str, ...]) -> str:
        """It is not repeated in the error: it may hold a password."""
        text = self.text(name, default)
        if urlsplit(text).scheme not in schemes:
            raise ConfigurationError(f"{name}: give a URL that begins with {' or '.join(schemes)}://")
        return text


def _backend(read: _Reader) -> str:
    if read.text("STATE_BACKEND", "").lower() == "memory":
        raise ConfigurationError(
            "STATE_BACKEND=memory: the service and the web app are two processes, and neither would see the other's "
            "memory; use file or sqlite on one machine, redis or postgresql on several"
        )
    return read.one_of("STATE_BACKEND", "file", BACKENDS, str.lower)


def _heartbeat(read: _Reader, ttl: timedelta) -> timedelta:
    name = "PIPELINE_LOCK_HEARTBEAT_SECONDS"
    least, most = HEARTBEATS_SECONDS
    usual = min(max(ttl.total_seconds() / 4, least), most)
    return read.seconds(name, str(usual), 0.05, 3600)
