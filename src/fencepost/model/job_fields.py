"""The optional fields of a job, one line each in `FIELDS`. Code, `fencepost.toml`, the API and stored rows are
read by the same function. A field at its default is left out of the JSON: a new field changes no stored job."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.model.limits import limits_to_json, read_limits
from fencepost.model.values import Json, clean_text
from fencepost.settings import duration

MOST_TAGS = 20
HIGHEST_PRIORITY = 100
LONGEST_JITTER = timedelta(hours=1)
_TAG = re.compile(r"[A-Za-z0-9_./-]{1,50}")


@dataclass(frozen=True, slots=True)
class Field:
    default: Any
    read: Callable[[Any], Any]
    """From what a user wrote, or from the stored JSON. Raises `ConfigurationError`."""
    write: Callable[[Any], Json] = lambda value: value


def read_tags(given: Any) -> tuple[str, ...]:
    tags = [given] if isinstance(given, str) else given
    if not isinstance(tags, list | tuple | set | frozenset):
        raise ConfigurationError(f'tags={given!r}: give a list of names, as tags=["nightly", "billing"]')
    for tag in tags:
        if not isinstance(tag, str) or not _TAG.fullmatch(tag):
            raise ConfigurationError(
                f"the tag {tag!r} is not usable; use 1 to 50 letters, digits and the characters _ . / -"
            )
    if len(set(tags)) > MOST_TAGS:
        raise ConfigurationError(f"a job has at most {MOST_TAGS} tags, not {len(set(tags))}")
    return tuple(sorted(set(tags)))


def text_of(name: str, limit: int) -> Callable[[Any], str]:
    def read(given: Any) -> str:
        if given is None:
            return ""
        if not isinstance(given, str):
            raise ConfigurationError(f"{name}={given!r}: give a text")
        if len(given) > limit:
            raise ConfigurationError(f"{name} has {len(given)} characters, the limit is {limit}")
        return clean_text(given).strip()

    return read


def read_jitter(given: Any) -> timedelta | None:
    if given is None:
        return None
    jitter = duration(given)
    if not timedelta(0) < jitter <= LONGEST_JITTER:
        raise ConfigurationError(f'jitter={given!r} does not work; give up to an hour, e.g. jitter="30s"')
    return jitter


def read_priority(given: Any) -> int:
    if given is None:
        return 0
    if type(given) is not int or abs(given) > HIGHEST_PRIORITY:
        raise ConfigurationError(
            f"priority={given!r} does not work; give a whole number from -{HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}: a "
            "higher one runs first"
        )
    return given


FIELDS: dict[str, Field] = {
    "tags": Field((), read_tags, list),
    "owner": Field("", text_of("owner", 200)),
    "priority": Field(0, read_priority),
    "limits": Field((), read_limits, limits_to_json),
    "description": Field("", text_of("description", 2000)),
    "jitter": Field(None, read_jitter, lambda jitter: None if jitter is None else jitter.total_seconds()),
}


def fields_to_json(job: Any) -> dict[str, Json]:
    """Without those at their default."""
    values = {name: getattr(job, name) for name in FIELDS}
    return {name: FIELDS[name].write(each) for name, each in values.items() if each != FIELDS[name].default}


def fields_from_json(value: Mapping[str, Json]) -> dict[str, Any]:
    return {name: value[name] for name in FIELDS if name in value}


def shown_fields(job: Any) -> dict[str, Json]:
    """As JSON, those at their default as well."""
    return {name: field.write(getattr(job, name)) for name, field in FIELDS.items()}
