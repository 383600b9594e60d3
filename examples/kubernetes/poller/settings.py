"""What the environment says about this service. Fencepost's own settings are `FENCEPOST_…`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from fencepost import ConfigurationError

LogFormat = Literal["text", "json"]


@dataclass(frozen=True)
class PollerSettings:
    valkey: str = "redis://127.0.0.1:6379/0"
    """Without parameters: the scheduler adds its prefix."""
    devices_url: str = "http://127.0.0.1:8900"
    devices: int = 5
    """They are numbered from 1."""
    interval: float = 5.0
    """Seconds between two polls of a device."""
    retry_first: float = 1.0
    """Seconds until a failed poll is repeated; doubling from there, up to a minute."""
    log_format: LogFormat = "text"

    @classmethod
    def load(cls, env: Mapping[str, str] | None = None) -> Self:
        given = os.environ if env is None else env
        return cls(
            valkey=_url(given, "POLLER_VALKEY", cls.valkey, ("redis", "rediss", "valkey", "valkeys")),
            devices_url=_url(given, "POLLER_DEVICES_URL", cls.devices_url, ("http", "https")),
            devices=int(_number(given, "POLLER_DEVICES", cls.devices, 1, 1_000)),
            interval=_number(given, "POLLER_INTERVAL", cls.interval, 0.1, 86_400),
            retry_first=_number(given, "POLLER_RETRY_FIRST", cls.retry_first, 0.05, 60),
            log_format=_format(given, "POLLER_LOG_FORMAT"),
        )


def _url(env: Mapping[str, str], name: str, default: str, schemes: tuple[str, ...]) -> str:
    """The value is not shown: it may have a password in it."""
    url = env.get(name) or default
    if url.partition("://")[0] not in schemes or "?" in url:
        raise ConfigurationError(f"{name}: give a URL that begins with {schemes[0]}:// and has no parameters")
    return url


def _number(env: Mapping[str, str], name: str, default: float, lowest: float, highest: float) -> float:
    text = env.get(name) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not lowest <= number <= highest:
        raise ConfigurationError(f"{name}={text[:40]!r}: give a number from {lowest:g} to {highest:g}")
    return number


def _format(env: Mapping[str, str], name: str) -> LogFormat:
    match env.get(name) or "text":
        case "text":
            return "text"
        case "json":
            return "json"
        case other:
            raise ConfigurationError(f"{name}={other[:40]!r}: give text or json")
