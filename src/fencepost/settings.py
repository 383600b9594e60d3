"""The settings: where each value comes from, what it may be, and how they must fit together.

An explicit value (command line or code) wins over `FENCEPOST_*`, which wins over `fencepost.toml`, or the
table `[tool.fencepost]` of `pyproject.toml` where there is no `fencepost.toml`. Whatever is wrong is found
here, before anything runs, and is a `ConfigurationError` that names the remedy. Secrets appear in no message
and in no `repr`.
"""

from __future__ import annotations

import difflib
import ipaddress
import logging
import math
import os
import re
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self

from fencepost.errors import ConfigurationError

DEFAULT_STORE: Final = "sqlite:///fencepost.db"
SHORTEST_HEARTBEAT: Final = timedelta(milliseconds=50)
SHORTEST_HORIZON: Final = timedelta(seconds=60)
LONGEST_RUN_TTL: Final = timedelta(hours=24)
LONGEST_DURATION: Final = timedelta(days=36_500)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Settings:
    store: str | None = None
    namespace: str = "default"
    execute_on: Literal["any", "leader"] = "any"
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
            if name not in _PARSERS:
                raise ConfigurationError(f"there is no setting {name!r}{did_you_mean(name, _PARSERS)}")
        given = {name: value for name, value in overrides.items() if value is not None}
        values = dict(defaults or {}) | _from_toml(directory or Path(), but_not=given)
        values |= _from_environment(os.environ if env is None else env, but_not=given)
        return cls(**(values | given))

    def __post_init__(self) -> None:
        values = {name: _parsed(name, getattr(self, name), called=name) for name in _PARSERS}
        if values["horizon"] is None:
            values["horizon"] = max(SHORTEST_HORIZON, 3 * values["leader_ttl"])
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check_limits()
        self._check_relations()

    def __repr__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        shown["store"] = self.store and redacted(self.store)
        for name in ("auth_token", "read_token"):
            shown[name] = shown[name] and "***"
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

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
            f"ready_delay ({_shown(delay)}) and drain_timeout ({_shown(drain)}) together exceed grace_period "
            f"({_shown(grace)}): runs that are still draining would be killed. Raise the platform's grace "
            f"period, and grace_period with it, to {_shown(delay + drain)}, or lower drain_timeout"
        ]

    def _check_limits(self) -> None:
        if self.heartbeat < SHORTEST_HEARTBEAT:
            raise ConfigurationError(
                f"heartbeat ({_shown(self.heartbeat)}) is too short: "
                f"raise it to {_shown(SHORTEST_HEARTBEAT)} or more"
            )
        if self.run_ttl > LONGEST_RUN_TTL:
            raise ConfigurationError(
                f"run_ttl ({_shown(self.run_ttl)}) is too long: lower it to {_shown(LONGEST_RUN_TTL)} or "
                "less. It need not cover a whole run, since heartbeats renew it"
            )
        if not self.retention:
            raise ConfigurationError("retention (0s) would keep no history: raise it, for instance to 30d")

    def _check_relations(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigurationError("tls_cert and tls_key belong together: set both, or neither")
        for name, ttl in (("leader_ttl", self.leader_ttl), ("run_ttl", self.run_ttl)):
            if ttl < 2 * self.heartbeat:
                lower = f", or lower heartbeat to {_shown(ttl / 2)}" if ttl / 2 >= SHORTEST_HEARTBEAT else ""
                raise ConfigurationError(
                    f"{name} ({_shown(ttl)}) must be at least twice heartbeat ({_shown(self.heartbeat)}), "
                    f"or one late heartbeat ends it: raise {name} to {_shown(2 * self.heartbeat)}{lower}"
                )
        horizon, ttl = self.horizon, self.leader_ttl
        if horizon < 2 * ttl:
            raise ConfigurationError(
                f"horizon ({_shown(horizon)}) must be at least twice leader_ttl ({_shown(ttl)}), or fires "
                f"could fall due unplanned while a leader is replaced: raise horizon to {_shown(2 * ttl)}, "
                f"lower leader_ttl to {_shown(horizon / 2)}, or leave horizon unset"
            )


@dataclass(frozen=True)
class Sources:
    """Where settings come from, apart from code and the command line."""

    file: Path | None
    """None: no file says anything."""
    variables: tuple[str, ...]
    unknown: tuple[str, ...]
    """Variables that look like ours and are none."""


def sources(*, env: Mapping[str, str] | None = None, directory: Path | None = None) -> Sources:
    path, table = _toml_table(directory or Path())
    given = _given(os.environ if env is None else env)
    known = tuple(sorted(given.keys() & _VARIABLES))
    return Sources(path if table else None, known, tuple(_unknown(given)))


def variable_hint(name: str) -> str:
    """The end of a message about an unknown variable."""
    return did_you_mean(name, _VARIABLES)


def duration(value: object) -> timedelta:
    """A duration: a `timedelta`, a number of seconds, or text such as `30`, `250ms`, `5m`, `1h30m`, `1d`."""
    try:
        parsed = _duration(value)
    except OverflowError:
        parsed = None
    if parsed is None or not timedelta(0) <= parsed <= LONGEST_DURATION:
        raise ConfigurationError(
            f"{_short(value)} is not a duration: give seconds, or text such as 250ms, 30s, 5m, 1h30m or 1d; "
            f"neither negative nor above {_shown(LONGEST_DURATION)}"
        )
    return parsed


def redacted(url: str) -> str:
    """The URL without its passwords, for messages. In doubt it hides too much rather than too little."""
    return _USER_INFO.sub(r"\1:***@", _SECRET_PARAMETER.sub(r"\1***", url))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: `; did you mean 'heartbeat'?`, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


# Where values come from


def _from_environment(env: Mapping[str, str], *, but_not: Container[str]) -> dict[str, Any]:
    given = _given(env)
    for name in _unknown(given):
        log.warning("unknown environment variable %s is ignored%s", name, variable_hint(name))
    values = {}
    for name in _PARSERS:
        if name in but_not:
            continue
        variable = _variable(name)
        if f"{variable}_FILE" in given and name in _SECRETS:
            values[name] = _parsed(name, _from_secret_file(variable, given), called=f"{variable}_FILE")
        elif variable in given:
            values[name] = _parsed(name, given[variable], called=variable)
    return values


def _given(env: Mapping[str, str]) -> dict[str, str]:
    """An empty variable counts as not set: templates of deployments leave such variables behind."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith("FENCEPOST_") and value.strip() and not _is_service_link(name, value)
    }


def _unknown(given: Mapping[str, str]) -> list[str]:
    return sorted(name for name in given.keys() - _VARIABLES if not name.startswith("FENCEPOST_TEST_"))


def _from_secret_file(variable: str, given: Mapping[str, str]) -> str:
    if variable in given:
        raise ConfigurationError(f"both {variable} and {variable}_FILE are set: keep one of them")
    try:
        return Path(given[f"{variable}_FILE"]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        # The path is not shown: it may be the secret itself, put into the wrong variable.
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"{variable}_FILE: cannot read the file it names: {reason}") from None


def _is_service_link(name: str, value: str) -> bool:
    """Kubernetes sets variables for every service; one named "fencepost" yields FENCEPOST_PORT=tcp://…:8787."""
    if name.endswith("_PORT") and re.match(r"(tcp|udp|sctp)://", value):
        return True
    return re.search(r"_SERVICE_(HOST|PORT)|_PORT_\d+_(TCP|UDP|SCTP)", name) is not None


def _toml_table(directory: Path) -> tuple[Path, dict[str, Any]]:
    path = directory / "fencepost.toml"
    table = _read_toml(path)
    if table is None:
        path = directory / "pyproject.toml"
        table = _our_table(_read_toml(path) or {}, path)
    return path, table


def reserved_table(name: str, directory: Path) -> tuple[Path, Any]:
    """A table beside the settings (`calendars`), and the file that it would be in; None: there is none."""
    path, table = _toml_table(directory)
    return path, table.get(name)


def _from_toml(directory: Path, *, but_not: Container[str]) -> dict[str, Any]:
    path, table = _toml_table(directory)
    for key in table:
        if key not in _PARSERS and key not in _RESERVED_TABLES:
            raise ConfigurationError(f"{path}: there is no setting {key!r}{did_you_mean(key, _PARSERS)}")
    return {
        name: _parsed(name, value, called=f"{path}: {name}")
        for name, value in table.items()
        if name not in _RESERVED_TABLES and name not in but_not
    }


def _our_table(table: dict[str, Any], path: Path) -> dict[str, Any]:
    for key in ("tool", "fencepost"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise ConfigurationError(f"{path}: {key!r} in [tool.fencepost] must be a table")
    return table


def _read_toml(path: Path) -> dict[str, Any] | None:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from None


# What values may be


def _parsed(name: str, value: object, *, called: str) -> Any:
    if value is None and name in _OPTIONAL:
        return None
    try:
        return _PARSERS[name](value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{called}: {error}") from None


def _text(value: object) -> str:
    """Never shows the value: it may be a secret."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigurationError("must be text, and not empty")
    return value.strip()


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
    if value not in ("any", "leader"):
        raise ConfigurationError(f"{_short(value)} is neither 'any' nor 'leader'")
    return str(value)


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


def _shown(length: timedelta) -> str:
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

# Both run to the last place where a secret could end: a raw "@", "/" or "?" in it must not expose the rest.
_USER_INFO: Final = re.compile(r"^([\w+.-]+://[^:]*|[^:/]*(?!://)):.*@", re.DOTALL)
_SECRET_PARAMETER: Final = re.compile(r"(\w*(?:password|passwd|pwd|secret|token)\w*\s*=)[^&]*", re.IGNORECASE)

_PARSERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "store": _store,
    "namespace": _namespace,
    "execute_on": _execute_on,
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
    }
)
_SECRETS: Final = ("store", "auth_token", "read_token")
_RESERVED_TABLES: Final = frozenset({"calendars", "jobs", "tasks"})


def _variable(name: str) -> str:
    return f"FENCEPOST_{name.upper()}"


_VARIABLES: Final = frozenset(map(_variable, _PARSERS)) | {f"{_variable(name)}_FILE" for name in _SECRETS}


# --- store URLs ---------------------------------------------------------------------------------------
#
# A password that is not percent-encoded takes a URL apart in the wrong place: a piece of it becomes the host, the port
# or the database, and drivers print those. So a broken URL is refused here, and the message shows its scheme alone.

SCHEMES: Final = (
    "memory",
    "file",
    "sqlite",
    "redis",
    "rediss",
    "valkey",
    "valkeys",
    "postgresql",
    "postgres",
)
ON_A_SERVER: Final = SCHEMES[3:]
QUOTE_IT = (
    "if user name or password hold any of @ / ? # % [ ] : or a space, write it percent-encoded (%40 for @)"
)

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
_USER: Final = r"(?:[^@\s\[\]%]|%[0-9A-Fa-f]{2})*"
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+(?:%25)?\w*\]|(?:[A-Za-z0-9._-]|%[0-9A-Fa-f]{2})*)(?::[0-9]{0,5})?"
_AUTHORITY: Final = re.compile(rf"(?:{_USER}@)?{_HOST}(?:,{_HOST})*")
_REDIS_AUTHORITY: Final = re.compile(rf"(?:[^\s\[\]]*@)?{_HOST}")
"""Its client takes all up to the last @ as user and password, as they are."""
_QUERY: Final = re.compile(r"\?(?:\w+=[^&]*(?:&\w+=[^&]*)*)?")


def scheme_of(url: str) -> str:
    """Before `://`; empty where there is none."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]{0,20})://", url)
    if found is None and url.startswith("file:"):
        return "file"  # `file:jobs`: a folder from here
    return found[1].lower() if found else ""


def checked_store_url(url: str) -> str:
    """The URL as it is; raises `ConfigurationError` if it can only be misunderstood."""
    scheme = scheme_of(url)
    if not scheme:
        raise ConfigurationError(f"this is no store URL; use one such as sqlite:///app.db or {_LIST}")
    if any(letter < " " for letter in url):
        raise _broken(scheme, "has a control character in it")
    found = _URL.fullmatch(url)
    if found is None:
        return url  # `file:jobs`
    if scheme not in ON_A_SERVER:
        if set("[]") & set(found[2]):
            raise _broken(scheme, "has a bracket where a host would be")
        return url
    _, authority, path, query, fragment = (part or "" for part in found.groups())
    pattern = _REDIS_AUTHORITY if scheme in ("redis", "rediss", "valkey", "valkeys") else _AUTHORITY
    if not pattern.fullmatch(authority):
        raise _broken(scheme, "names no host and port that can be read")
    if "@" not in authority and ":" in authority and "@" in path + query + fragment:
        raise _broken(scheme, "has an @ behind the host")
    if fragment:
        raise _broken(scheme, "has a # in it")
    if query and not _QUERY.fullmatch(query):
        raise _broken(scheme, "has parameters that are not name=value")
    return url


def _broken(scheme: str, how: str) -> ConfigurationError:
    return ConfigurationError(f"the store URL ({scheme}://…) {how}; {QUOTE_IT}")


_LIST: Final = ", ".join(f"{scheme}://" for scheme in SCHEMES)
