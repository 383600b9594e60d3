"""Frozen dataclasses as JSON and back, driven by their type hints. No pickle, nothing executable.

Fields at their default are left out, so that a stored row stays small and a field can be added later.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache, lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fencepost.errors import StoreCorrupt
from fencepost.model import Job, Json, Overlap, job_from_json, job_to_json
from fencepost.model.retry import Retry
from fencepost.model.triggers import Trigger, stored_trigger
from fencepost.store.base import Update

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TAG = "is"
_SCALARS = frozenset({str, int, float, bool, type(None)})


def micros(moment: datetime) -> int:
    """Microseconds since 1970: exact, ordered, and small enough for every store's integers."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def ticks(when: datetime | None) -> int | None:
    return None if when is None else micros(when)


def when(ticks: int | None) -> datetime | None:
    return None if ticks is None else moment(ticks)


def to_json(value: Any) -> Json:
    kind: Any = type(value)
    return _writer(kind)(value)


def from_json(kind: Any, value: Json) -> Any:
    """`value` as a `kind`; a clear error if it is not one."""
    try:
        return _reader(kind)(value)
    except StoreCorrupt:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise StoreCorrupt(f"a stored {getattr(kind, '__name__', kind)} cannot be read: {error}") from error


Writer = Callable[[Any], Json]


@cache
def _writer(kind: Any) -> Writer:
    if kind in _SCALARS:
        return _as_it_is
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, datetime):
        return micros
    if issubclass(kind, timedelta):
        return timedelta.total_seconds
    if issubclass(kind, Job):
        return job_to_json
    if issubclass(kind, Trigger):
        return _trigger_to_json
    if issubclass(kind, Retry):
        return Retry.to_json
    if issubclass(kind, Overlap):
        return str
    if dataclasses.is_dataclass(kind):
        return _fields_writer(kind)
    if issubclass(kind, Mapping):
        return lambda value: {key: to_json(each) for key, each in value.items()}
    if issubclass(kind, str | int | float):
        return _as_it_is
    return lambda value: [to_json(each) for each in value]


@lru_cache(maxsize=1_000)
def _trigger_to_json(trigger: Trigger) -> Json:
    """Many jobs share a few calendars."""
    return trigger.to_json()


def _fields_writer(kind: Any) -> Writer:
    tag: dict[str, Json] = {_TAG: kind.__name__} if issubclass(kind, Update) else {}
    defaults = [(field.name, field.default) for field in dataclasses.fields(kind)]

    def write(value: Any) -> Json:
        found = dict(tag)
        for name, default in defaults:
            content = getattr(value, name)
            if content is not default and (default is dataclasses.MISSING or content != default):
                found[name] = content if type(content) in _SCALARS else to_json(content)
        return found

    return write


Reader = Callable[[Any], Any]


@cache
def _reader(kind: Any) -> Reader:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return _as_it_is
    if kind in _SCALARS:
        return _scalar_reader(kind)
    if origin is Literal:
        return _literal_reader(arguments)
    if origin in (Union, types.UnionType):
        return _union_reader(arguments)
    if origin in (tuple, Sequence) or (origin is not None and issubclass(origin, Sequence)):
        each = _reader(arguments[0])
        return lambda value: tuple(each(item) for item in _listed(value))
    if origin is frozenset:
        return frozenset
    if origin is not None and issubclass(origin, Mapping):
        inner = _reader(arguments[1])
        return lambda value: {key: inner(item) for key, item in value.items()}
    return _class_reader(kind)


def _scalar_reader(kind: Any) -> Reader:
    """What the rules count and compare with must be what they expect: a text in place of a number would break a
    whole step, far from the row that it came from."""
    accepted = (int, float) if kind is float else (kind,)

    def read(value: Any) -> Any:
        if type(value) not in accepted:
            raise StoreCorrupt(f"{value!r:.100} is no {kind.__name__}")
        return value

    return read


def _literal_reader(accepted: Sequence[Any]) -> Reader:
    def read(value: Any) -> Any:
        if value not in accepted:
            raise StoreCorrupt(f"{value!r:.100} is none of {', '.join(map(str, accepted))}")
        return value

    return read


def _class_reader(kind: Any) -> Reader:
    special: dict[Any, Reader] = {
        datetime: moment,
        timedelta: lambda value: timedelta(seconds=value),
        Job: lambda value: job_from_json(value, stored_trigger),
        Trigger: stored_trigger,
        Retry: Retry.from_json,
        Overlap: Overlap.parse,
    }
    if kind in special:
        return special[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    hints = get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}
    return lambda value: kind(**{name: readers[name](content) for name, content in value.items()})


def _union_reader(arguments: Sequence[Any]) -> Reader:
    """Optional things, and dataclasses told apart by their tag."""
    kinds = [kind for kind in arguments if kind is not type(None)]
    if len(kinds) == 1:
        inner = _reader(kinds[0])
        return lambda value: None if value is None else inner(value)
    readers = {kind.__name__: _reader(kind) for kind in kinds}
    return lambda value: readers[value[_TAG]]({k: v for k, v in value.items() if k != _TAG})


def _listed(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise StoreCorrupt(f"{value!r:.100} is no list")
    return value


def _as_it_is(value: Any) -> Any:
    return value
