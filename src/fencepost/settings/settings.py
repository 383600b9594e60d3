"""The settings: where each value comes from, what it may be, and how they must fit together.

An explicit value (command line or code) wins over `FENCEPOST_*`, which wins over `fencepost.toml`, or the
table `[tool.fencepost]` of `pyproject.toml` where there is no `fencepost.toml`. Whatever is wrong is found
here, before anything runs, and is a `ConfigurationError` that names the remedy. Secrets appear in no message
and in no `repr`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self

from fencepost.errors import ConfigurationError
from fencepost.settings.places import from_environment, from_toml
from fencepost.settings.store_urls import redacted
from fencepost.settings.values import PARSERS, did_you_mean, parsed, shown

DEFAULT_STORE: Final = "sqlite:///fencepost.db"
SHORTEST_HEARTBEAT: Final = timedelta(milliseconds=50)
SHORTEST_HORIZON: Final = timedelta(seconds=60)
LONGEST_RUN_TTL: Final = timedelta(hours=24)


@dataclass(frozen=True, kw_only=True)
class Settings:
    store: str | None = None
    namespace: str = "default"
    execute_on: str = "any"  # or "leader", or a pool: where jobs run that do not say it
    pools: tuple[str, ...] = ("default",)  # whose jobs this replica runs
    leader_ttl: timedelta = timedelta(seconds=30)
    heartbeat: timedelta = timedelta(seconds=10)
    run_ttl: timedelta = timedelta(seconds=30)
    horizon: timedelta = None  # type: ignore[assignment]  # unset: see __post_init__
    slots: int = 10
    drain_timeout: timedelta = timedelta(seconds=20)
    ready_delay: timedelta = timedelta(seconds=3)
    grace_period: timedelta = timedelta(seconds=30)  # how long the platform waits between SIGTERM and SIGKILL
    revision: int | None = None  # grows with every deploy: tells an older replica from a newer one
    origin: str | None = (
        None  # what the application is called in its definitions, in place of where its code is
    )
    auth_token: str | None = None  # may do everything
    read_token: str | None = None  # may look, not act
    tokens_file: str | None = None  # named tokens with roles (access.py)
    tls_cert: str | None = None  # of `fencepost serve`: the certificate chain, and its key
    tls_key: str | None = None
    trusted_proxies: tuple[str, ...] = ()  # addresses or networks whose forwarding headers count
    host: str = "127.0.0.1"
    port: int = 8787
    retention: timedelta = timedelta(days=30)
    metrics_jobs: int = 200  # jobs with labels of their own in /metrics; 0: none
    log_level: Literal["debug", "info", "warning", "error"] = "info"  # of `fencepost run` and `serve`
    telemetry: Literal["off", "otel"] = "off"  # what a replica is instrumented with
    dashboard_url: str | None = None  # where people find the dashboard: messages of channels link to it

    @classmethod
    def load(
        cls,
        *,
        env: Mapping[str, str] | None = None,
        directory: Path | None = None,
        defaults: Mapping[str, Any] | None = None,
        **overrides: Any,
    ) -> Self:
        """The settings for this process. An override that is None counts as not given; `defaults` take the place of
        ours where nothing is given."""
        for name in overrides:
            if name not in PARSERS:
                raise ConfigurationError(f"there is no setting {name!r}{did_you_mean(name, PARSERS)}")
        given = {name: value for name, value in overrides.items() if value is not None}
        values = dict(defaults or {}) | from_toml(directory or Path(), but_not=given)
        values |= from_environment(os.environ if env is None else env, but_not=given)
        return cls(**(values | given))

    def __post_init__(self) -> None:
        values = {name: parsed(name, getattr(self, name), called=name) for name in PARSERS}
        if values["horizon"] is None:
            values["horizon"] = max(SHORTEST_HORIZON, 3 * values["leader_ttl"])
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check_limits()
        self._check_relations()

    def __repr__(self) -> str:
        public = {field.name: getattr(self, field.name) for field in fields(self)}
        public["store"] = self.store and redacted(self.store)
        for name in ("auth_token", "read_token"):
            public[name] = public[name] and "***"
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in public.items())})"

    def store_url(self, *, env: Mapping[str, str] | None = None) -> str:
        """The store given, else a SQLite file here, except where that would be one file per pod."""
        if self.store is not None:
            return self.store
        if "KUBERNETES_SERVICE_HOST" in (os.environ if env is None else env):
            raise ConfigurationError(
                f"no store is given, and in Kubernetes the default {DEFAULT_STORE} would be another file in "
                "each pod, so every pod would run every job: set FENCEPOST_STORE to a store that they share"
            )
        return DEFAULT_STORE

    def warnings(self) -> list[str]:
        """What will work, but probably not as intended."""
        delay, drain, grace = self.ready_delay, self.drain_timeout, self.grace_period
        if delay + drain <= grace:
            return []
        return [
            f"ready_delay ({shown(delay)}) and drain_timeout ({shown(drain)}) together exceed grace_period "
            f"({shown(grace)}): runs that are still draining would be killed. Raise the platform's grace "
            f"period, and grace_period with it, to {shown(delay + drain)}, or lower drain_timeout"
        ]

    def _check_limits(self) -> None:
        if self.heartbeat < SHORTEST_HEARTBEAT:
            raise ConfigurationError(
                f"heartbeat ({shown(self.heartbeat)}) is too short: "
                f"raise it to {shown(SHORTEST_HEARTBEAT)} or more"
            )
        if self.run_ttl > LONGEST_RUN_TTL:
            raise ConfigurationError(
                f"run_ttl ({shown(self.run_ttl)}) is too long: lower it to {shown(LONGEST_RUN_TTL)} or "
                "less. It need not cover a whole run, since heartbeats renew it"
            )
        if not self.retention:
            raise ConfigurationError("retention (0s) would keep no history: raise it, for instance to 30d")

    def _check_relations(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigurationError("tls_cert and tls_key belong together: set both, or neither")
        for name, ttl in (("leader_ttl", self.leader_ttl), ("run_ttl", self.run_ttl)):
            if ttl < 2 * self.heartbeat:
                lower = f", or lower heartbeat to {shown(ttl / 2)}" if ttl / 2 >= SHORTEST_HEARTBEAT else ""
                raise ConfigurationError(
                    f"{name} ({shown(ttl)}) must be at least twice heartbeat ({shown(self.heartbeat)}), "
                    f"or one late heartbeat ends it: raise {name} to {shown(2 * self.heartbeat)}{lower}"
                )
        horizon, ttl = self.horizon, self.leader_ttl
        if horizon < 2 * ttl:
            raise ConfigurationError(
                f"horizon ({shown(horizon)}) must be at least twice leader_ttl ({shown(ttl)}), or fires "
                f"could fall due unplanned while a leader is replaced: raise horizon to {shown(2 * ttl)}, "
                f"lower leader_ttl to {shown(horizon / 2)}, or leave horizon unset"
            )
