"""Values from user code, made fit to be stored: every store can keep them, read them back and send them as JSON.

Everything that user code, a command line or a request hands in passes through here once, where it enters:

* `clean_json(value, what, limit)` for arguments, checkpoints, reports, results and what is kept;
* `clean_number(value, what)` for one number, such as `done` and `total` of a report;
* `clean_text(text, limit)` for messages, notes, errors and names of people;
* `fresh_copy(value)` for a stored JSON value that is handed to user code, which may change it;
* `json_text(value)` for a stored value that is sent somewhere.

`clean_json` always returns a copy: what was handed in may change afterwards, what is stored does not. It converts

    numbers with `__index__` or `__float__` (numpy, Decimal, Fraction)   to int or float; booleans stay booleans
    NaN and infinities                                                   to null
    tuples and other mappings                                            to lists and dictionaries
    subclasses of str, int, float, list and dict                         to the plain type
    half a surrogate pair (bytes that were no UTF-8)                     to U+FFFD

and raises `NotStorable`, which is a `TypeError` and a `ConfigurationError`, for everything else. Where a clean value is
cleaned again it stays as it is.
"""

from __future__ import annotations

import json
import math
import numbers
import operator
import re
from collections.abc import Mapping, Sized
from decimal import Decimal
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

from fencepost.errors import ConfigurationError, NotStorable

Json = Any
"""A JSON value. Made so by `clean_json`, not by the type."""
R = TypeVar("R")

LIMIT = 65_536
"""Bytes of JSON."""
DEEPEST = 100
"""Levels of lists and dictionaries. Parsers differ in how many they take; all take this many."""
REPLACEMENT = "\ufffd"

_REMEDY = "pass numbers, strings, booleans, lists and dictionaries with string keys only"


def clean_json(value: Any, what: str, limit: int = LIMIT) -> Any:
    """A copy of `value` as plain JSON of at most `limit` bytes; `what` names it in the error."""
    try:
        cleaned = _clean(value, DEEPEST)
        size = len(json.dumps(cleaned))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(f"{what} cannot be stored as JSON ({error}); {_REMEDY}") from None
    if size > limit:
        raise ConfigurationError(f"{what}: {size} bytes of JSON, the limit is {limit}; store a reference")
    return cleaned


def clean_number(value: Any, what: str) -> int | float | None:
    """A number as JSON has it; NaN and infinities are None."""
    if value is None or type(value) is int:
        return value
    try:
        return _number(value)
    except TypeError:
        raise NotStorable(f"{what} is {_shown(value)}; give a number") from None


def clean_text(text: str, limit: int | None = None) -> str:
    """At most `limit` characters. Half a surrogate pair and NUL, which no UTF-8 or no PostgreSQL has, are replaced."""
    text = text[:limit] if type(text) is str else str.__str__(text)[:limit]
    return _whole(text).replace("\0", REPLACEMENT)


def fresh_copy(value: Any) -> Any:
    """A copy of a clean value, with lists and dictionaries of its own."""
    if isinstance(value, Mapping):
        return {key: fresh_copy(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fresh_copy(each) for each in value]
    return value


def json_text(value: Any) -> str:
    """Of what was read from a store. Rows of earlier releases may hold values that cannot be sent: they are cleaned."""
    try:
        text = _dumps(value)
        text.encode()
    except ValueError:
        return _dumps(_clean(value, DEEPEST))
    return text


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _clean(value: Any, levels: int) -> Any:
    if value is None or value is True or value is False or type(value) is int:
        return value
    if isinstance(value, str):
        return _whole(value if type(value) is str else str.__str__(value))
    if isinstance(value, list | tuple | Mapping) and not levels:
        raise TypeError(f"it is nested deeper than {DEEPEST} levels")
    if isinstance(value, list | tuple):
        return [_clean(each, levels - 1) for each in value]
    if isinstance(value, Mapping):
        return {_key(key): _clean(each, levels - 1) for key, each in value.items()}
    return _number(value)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {_shown(key)} is no string")
    return _whole(str.__str__(key))


def _number(value: Any) -> bool | int | float | None:
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else None
    if kind.__module__ == "numpy" and kind.__name__ in ("bool", "bool_"):
        return bool(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if _is_a_number(value):
        try:
            return int(operator.index(value))
        except TypeError:  # no whole number
            pass
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    raise TypeError(f"{_shown(value)} is no JSON")


def _is_a_number(value: Any) -> bool:
    """An array or a text of a single number would convert as well. It is refused like one of several numbers."""
    if isinstance(value, bytes | bytearray) or (
        isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real)
    ):
        return False
    if not isinstance(value, SupportsIndex | SupportsFloat):
        return False
    return not isinstance(value, Sized) or getattr(value, "ndim", None) == 0


def _decimal(value: Decimal) -> int | float | None:
    if not value.is_finite():
        return None
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(value) if number.is_integer() and abs(number) < 2**63 and value == int(value) else number


def _whole(text: str) -> str:
    """Halves of a pair that stand together become the character they mean."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _shown(value: Any) -> str:
    """In an error. A value of a foreign type may fail to show itself."""
    try:
        text = repr(value)
    except Exception:
        text = "(it cannot be shown)"
    return f"{text[:60]} of type {type(value).__name__}"


# --- what all records share ---------------------------------------------------------------------------


def changed(record: R, **values: Any) -> R:
    """`dataclasses.replace` for records, many times as fast: nothing is checked again. A fire passes through half
    a dozen of these on its way, so records keep their values in a plain dictionary."""
    copy: R = object.__new__(type(record))
    copy.__dict__.update(record.__dict__)
    copy.__dict__.update(values)
    return copy


_ID = re.compile(r"[A-Za-z0-9_.:-]{1,200}")


def checked_id(text: object, what: str) -> str:
    if not isinstance(text, str) or not _ID.fullmatch(text):
        raise ConfigurationError(
            f"{what} {text!r} is not usable; use 1 to 200 letters, digits and the characters _ . : -"
        )
    return text
