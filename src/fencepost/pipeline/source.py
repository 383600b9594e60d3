"""Sources, and whether they are still the ones of the last success.

The gate fails open: a source that cannot be probed, that says nothing to compare, or whose local artefacts are missing,
counts as changed. Only what is known to be unchanged is left alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fencepost.errors import ConfigurationError
from fencepost.model import Json, checked_id
from fencepost.model.retry import Retry
from fencepost.settings import did_you_mean, duration

log = logging.getLogger("fencepost")

PROBE = "source_probe"
"""The phase in which sources are asked."""
VALIDATORS = ("etag", "last_modified", "file_name", "url")
RETRY = Retry(attempts=3, first=1, cap=30)
TEXT_LIMIT = 1_000


@dataclass(frozen=True)
class Validators:
    """What a server says of the bytes it serves."""

    etag: str | None = None
    last_modified: str | None = None
    length: int | None = None
    file_name: str | None = None
    url: str | None = None
    """Where redirects have led, without its query: some permanent links lead to a file of another name each day."""

    @classmethod
    def of(cls, value: Mapping[str, Json]) -> Validators:
        return cls(**{name: value.get(name) for name in cls.__dataclass_fields__})

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


class Source:
    """Something to be fetched by HTTP.

    `artefacts`: files made of it, which must be there for it to count as unchanged. `modes`: it is probed in these.
    `probe=False`: it is never probed, since it is fetched every time.
    `by`: what is compared, the first that both sides have decides: `etag`, `last_modified`, and if you ask for them
    `file_name` and `url`. Redirects lead to the URL's own host and to `allow_hosts`; addresses of internal
    networks are refused unless `allow_private`. `timeout` is for each answer and each piece of it, not for the whole.
    `headers` go to the URL's own scheme, host and port only.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        artefacts: Sequence[str | os.PathLike[str]] = (),
        modes: Sequence[str] = (),
        probe: bool = True,
        by: Sequence[str] = ("etag", "last_modified"),
        allow_hosts: Sequence[str] = (),
        allow_private: bool = False,
        timeout: Any = 120,
        retry: Retry = RETRY,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.name = checked_id(name, "source name")
        self.url = url
        self.artefacts = tuple(map(Path, artefacts))
        self.modes = tuple(modes)
        self.probe = probe
        self.by = tuple(by)
        self.allow_private = allow_private
        self.timeout = duration(timeout).total_seconds()
        self.retry = retry
        self.headers = dict(headers or {})
        for each in self.by:
            if each not in VALIDATORS:
                raise ConfigurationError(
                    f"source {name}: there is no {each!r} to compare{did_you_mean(each, VALIDATORS)}"
                )
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"source {name}: its url must begin with https:// or http:// and a host")
        if parts.username or parts.password:
            raise ConfigurationError(f"source {name}: give credentials as headers=, not in its url")
        if isinstance(allow_hosts, str) or not self.by or self.timeout <= 0:
            raise ConfigurationError(
                f"source {name}: allow_hosts is a list, `by` names something, timeout is above 0"
            )
        self.hosts = frozenset({parts.hostname, *(host.lower() for host in allow_hosts)})

    def missing_artefact(self) -> Path | None:
        """An empty file is as good as none: something was cut off."""
        return next((path for path in self.artefacts if not path.exists() or _is_empty(path)), None)

    def __repr__(self) -> str:
        return f"<Source {self.name}>"  # a URL may hold a secret


@dataclass(frozen=True)
class Freshness:
    changed: bool
    why: str
    validators: Validators | None = field(default=None)
    """As probed; None: the probe failed."""

    @classmethod
    def of(cls, value: Mapping[str, Json]) -> Freshness:
        found = value["validators"]
        return cls(value["changed"], value["why"], None if found is None else Validators.of(found))

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def probed(source: Source) -> Validators | str:
    """What its server says of it now, or why that cannot be known. Blocking."""
    from fencepost.pipeline.http import ProbeFailed, probe

    try:
        return probe(source)
    except ProbeFailed as error:
        message = str(error)
    except Exception as error:  # whatever it is, the gate stays open
        log.exception("source %s: the probe failed", source.name)
        message = type(error).__name__
    return f"the probe failed: {message}"[:TEXT_LIMIT]


def freshness(source: Source, found: Validators | str, last: Validators | None) -> Freshness:
    """Compare what was found with the bytes that the last success has processed."""
    if isinstance(found, str):
        return Freshness(True, found)
    why = _change(source, found, last)
    return Freshness(why is not None, why or "unchanged", found)


def _change(source: Source, found: Validators, last: Validators | None) -> str | None:
    if last is None:
        return "it has not been processed before"
    if (missing := source.missing_artefact()) is not None:
        return f"{missing} is missing or empty"
    if None not in (found.length, last.length) and found.length != last.length:
        return f"its length is {found.length}, not {last.length}"
    for name in source.by:
        now, before = getattr(found, name), getattr(last, name)
        if now is not None and before is not None:
            return None if now == before else f"{name} is {now!r}, not {before!r}"
    return "its server says nothing to compare"


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0
