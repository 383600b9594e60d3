"""What each setting may be: text, numbers and durations as people write them."""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from fencepost.errors import ConfigurationError
from fencepost.settings.store_urls import checked_store_url

LONGEST_DURATION: Final = timedelta(days=36_500)
MOST_POOLS: Final = 20


def duration(value: object) -> timedelta:
    """A duration: a `timedelta`, a number of seconds, or text such as `30`, `250ms`, `5m`, `1h30m`, `1d`."""
    try:
        parsed = _duration(value)
    except OverflowError:
        parsed = None
    if parsed is None or not timedelta(0) <= parsed <= LONGEST_DURATION:
        raise ConfigurationError(
            f"{_short(value)} is not a duration: give seconds, or text such as 250ms, 30s, 5m, 1h30m or 1d; "
            f"neither negative nor above {shown(LONGEST_DURATION)}"
        )
    return parsed


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: `; did you mean 'heartbeat'?`, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def parsed(name: str, value: object, *, called: str) -> Any:
    if value is None and name in _OPTIONAL:
        return None
    try:
        return PARSERS[name](value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{called}: {error}") from None


def _text(value: object) -> str:
    """Never shows the value: it may be a secret."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError("must be text, and not empty")
    return value.strip()


def _web_address(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s<>()|\"'@]{1,500}", value):
        raise ConfigurationError("must be a URL such as https://ops.example.com/fencepost")
    return value.rstrip("/")


def _store(value: object) -> str:
    return checked_store_url(_text(value))


def _namespace(value: object) -> str:
    if (
        not isinstance(value, str)
        or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,100}", value)
        or not value.strip(".")
    ):
        raise ConfigurationError(
            f"{_short(value)} is not a namespace: use 1 to 100 letters, digits or any of _ . : -, and not only dots"
        )
    return value


def _origin(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[^\s](?:[^\x00-\x1f]{0,198}[^\s])?", value):
        raise ConfigurationError(f"{_short(value)} is not a name: use 1 to 200 letters, such as shop")
    return value


def _execute_on(value: object) -> str:
    return str(value) if value in ("any", "leader") else _pool(value)


def _pool(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,100}", value):
        raise ConfigurationError(
            f"{_short(value)} is not a pool: use 1 to 100 letters, digits or any of _ . : -"
        )
    return value


def _pools(value: object) -> tuple[str, ...]:
    """A list, or text with commas or spaces between."""
    parts = re.split(r"[,\s]+", value.strip()) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not 1 <= len(parts) <= MOST_POOLS:
        raise ConfigurationError(
            f"{_short(value)} is not a list of 1 to {MOST_POOLS} pools, such as default,gpu"
        )
    for part in parts:
        if part in ("any", "leader"):
            raise ConfigurationError(
                f"a pool cannot be called {part!r}: execute_on={part!r} has its own meaning"
            )
    return tuple(dict.fromkeys(_pool(part) for part in parts))


def _networks(value: object) -> tuple[str, ...]:
    """A list, or text with commas or spaces between."""
    parts = re.split(r"[,\s]+", value.strip()) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ConfigurationError(f"{_short(value)} is not a list of addresses")
    for part in parts:
        try:
            ipaddress.ip_network(part, strict=False)
        except ValueError:
            raise ConfigurationError(
                f"{_short(part)} is neither an address nor a network, such as 10.0.0.7 or 10.0.0.0/8"
            ) from None
    return tuple(parts)


def _log_level(value: object) -> str:
    level = value.strip().lower() if isinstance(value, str) else value
    if level not in ("debug", "info", "warning", "error"):
        raise ConfigurationError(f"{_short(value)} is not a log level: use debug, info, warning or error")
    return str(level)


def _telemetry(value: object) -> str:
    name = value.strip().lower() if isinstance(value, str) else value
    if name not in ("off", "otel"):
        raise ConfigurationError(f"{_short(value)} is no telemetry: use otel or off")
    return str(name)


def _whole_number(lowest: int, highest: int, hint: str = "") -> Callable[[object], int]:
    def parse(value: object) -> int:
        try:
            number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or not lowest <= number <= highest:
            raise ConfigurationError(
                f"{_short(value)} is not a whole number from {lowest} to {highest}{hint}"
            )
        return number

    return parse


def _duration(value: object) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return timedelta(seconds=value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if re.fullmatch(_NUMBER, text):
        return timedelta(seconds=float(text))
    match = _DURATION.fullmatch(text) if text else None
    if match is None:
        return None
    return timedelta(**{unit: float(number) for unit, number in match.groupdict(default="0").items()})


def shown(length: timedelta) -> str:
    """As short as it can be written and read back: `90s`, `2h`, `250ms`."""
    for unit, letter in _UNITS_SHOWN:
        if length and length % unit == timedelta(0):
            return f"{length // unit}{letter}"
    return f"{length / timedelta(milliseconds=1):.15g}ms" if length else "0s"


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python will print
        return "the number given"
    return text if len(text) <= 60 else f"{text[:60]}…"


_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?"
_DURATION: Final = re.compile(
    r"\s*".join(
        rf"(?:(?P<{unit}>{_NUMBER}){letter})?"
        for unit, letter in (
            ("days", "d"),
            ("hours", "h"),
            ("minutes", "m"),
            ("seconds", "s"),
            ("milliseconds", "ms"),
        )
    )
)
_UNITS_SHOWN: Final = (
    (timedelta(days=1), "d"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "m"),
    (timedelta(seconds=1), "s"),
)

PARSERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "store": _store,
    "namespace": _namespace,
    "execute_on": _execute_on,
    "pools": _pools,
    "leader_ttl": duration,
    "heartbeat": duration,
    "run_ttl": duration,
    "horizon": duration,
    "slots": _whole_number(1, 10_000),
    "drain_timeout": duration,
    "ready_delay": duration,
    "grace_period": duration,
    "revision": _whole_number(0, 2**53, hint=" that grows with every deploy, such as a build number"),
    "origin": _origin,
    "auth_token": _text,
    "read_token": _text,
    "tokens_file": _text,
    "tls_cert": _text,
    "tls_key": _text,
    "trusted_proxies": _networks,
    "host": _text,
    "port": _whole_number(0, 65_535),
    "retention": duration,
    "metrics_jobs": _whole_number(0, 10_000),
    "log_level": _log_level,
    "telemetry": _telemetry,
    "dashboard_url": _web_address,
}
_OPTIONAL: Final = frozenset(
    {
        "store",
        "horizon",
        "revision",
        "origin",
        "auth_token",
        "read_token",
        "tokens_file",
        "tls_cert",
        "tls_key",
        "dashboard_url",
    }
)
