"""Where settings come from: the environment, `fencepost.toml` or `pyproject.toml`."""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fencepost.errors import ConfigurationError
from fencepost.settings.values import PARSERS, did_you_mean, parsed

log = logging.getLogger("fencepost.settings")


@dataclass(frozen=True)
class Sources:
    """Where settings come from, apart from code and the command line."""

    file: Path | None
    """None: no file says anything."""
    variables: tuple[str, ...]
    unknown: tuple[str, ...]
    """Variables that look like ours and are none."""


def sources(*, env: Mapping[str, str] | None = None, directory: Path | None = None) -> Sources:
    path, table = toml_table(directory or Path())
    given = given_variables(os.environ if env is None else env)
    known = tuple(sorted(given.keys() & VARIABLES))
    return Sources(path if table else None, known, tuple(unknown_variables(given)))


def variable_hint(name: str) -> str:
    """The end of a message about an unknown variable."""
    return did_you_mean(name, VARIABLES)


def from_environment(env: Mapping[str, str], *, but_not: Container[str]) -> dict[str, Any]:
    given = given_variables(env)
    for name in unknown_variables(given):
        log.warning("unknown environment variable %s is ignored%s", name, variable_hint(name))
    values = {}
    for name in PARSERS:
        if name in but_not:
            continue
        variable = _variable(name)
        if f"{variable}_FILE" in given and name in _SECRETS:
            values[name] = parsed(name, _from_secret_file(variable, given), called=f"{variable}_FILE")
        elif variable in given:
            values[name] = parsed(name, given[variable], called=variable)
    return values


def given_variables(env: Mapping[str, str]) -> dict[str, str]:
    """An empty variable counts as not set: templates of deployments leave such variables behind."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith("FENCEPOST_") and value.strip() and not _is_service_link(name, value)
    }


def unknown_variables(given: Mapping[str, str]) -> list[str]:
    return sorted(name for name in given.keys() - VARIABLES if not name.startswith("FENCEPOST_TEST_"))


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


def toml_table(directory: Path) -> tuple[Path, dict[str, Any]]:
    path = directory / "fencepost.toml"
    table = _read_toml(path)
    if table is None:
        path = directory / "pyproject.toml"
        table = _our_table(_read_toml(path) or {}, path)
    return path, table


def reserved_table(name: str, directory: Path) -> tuple[Path, Any]:
    """A table beside the settings (`calendars`), and the file that it would be in; None: there is none."""
    path, table = toml_table(directory)
    return path, table.get(name)


def from_toml(directory: Path, *, but_not: Container[str]) -> dict[str, Any]:
    path, table = toml_table(directory)
    for key in table:
        if key not in PARSERS and key not in _RESERVED_TABLES:
            raise ConfigurationError(f"{path}: there is no setting {key!r}{did_you_mean(key, PARSERS)}")
    return {
        name: parsed(name, value, called=f"{path}: {name}")
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


_SECRETS: Final = ("store", "auth_token", "read_token")
_RESERVED_TABLES: Final = frozenset({"calendars", "jobs", "notify", "tasks"})


def _variable(name: str) -> str:
    return f"FENCEPOST_{name.upper()}"


_ELSEWHERE: Final = {
    "APP",
    "SERVICE",
    "ORDER",
    "CELERY_APP",
    "DASK_SCHEDULER",
    "KUBECONFIG",
    "KUBERNETES_NAMESPACE",
}
"""Read by engines and their workers, not here (docs/engines.md)."""

VARIABLES: Final = (
    frozenset(map(_variable, PARSERS))
    | {f"{_variable(name)}_FILE" for name in _SECRETS}
    | set(map(_variable, _ELSEWHERE))
)
