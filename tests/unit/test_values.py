"""What user code hands in is made fit for every store, or refused where it was handed in."""

from __future__ import annotations

import json
from collections import OrderedDict
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import Fire
from fencepost.errors import ConfigurationError
from fencepost.model.values import DEEPEST, clean_json, clean_number, clean_text, fresh_copy

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
ANY_TEXT = st.text(st.characters(exclude_categories=()))


class Colour(str, Enum):  # noqa: UP042
    RED = "red"


class Level(IntEnum):
    HIGH = 3


CONVERTED = [
    (numpy.int64(3), 3),
    (numpy.uint8(255), 255),
    (numpy.float32(1.5), 1.5),
    (numpy.float64("nan"), None),
    (numpy.bool_(True), True),
    (numpy.str_("text"), "text"),
    (numpy.array(2.5), 2.5),
    (Decimal(3), 3),
    (Decimal("3.50"), 3.5),
    (Decimal("NaN"), None),
    (Decimal("sNaN"), None),
    (Decimal("-Infinity"), None),
    (Decimal("1e400"), None),
    (Decimal(2**53 + 1), 2**53 + 1),
    (Fraction(1, 4), 0.25),
    (Fraction(10**400), None),
    (float("nan"), None),
    (float("inf"), None),
    (True, True),
    (Colour.RED, "red"),
    (Level.HIGH, 3),
    ("caf\udce9", "caf\ufffd"),
    ("\ud83d\ude00 and \ud83dx", "\U0001f600 and \ufffdx"),
    ((1, (2,)), [1, [2]]),
    ({"a\udce9": "\ud800"}, {"a\ufffd": "\ufffd"}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    (OrderedDict(b=1), {"b": 1}),
]


@pytest.mark.parametrize(("value", "stored"), CONVERTED, ids=lambda value: type(value).__name__)
def test_what_has_a_plain_form_is_converted(value: Any, stored: Any) -> None:
    cleaned = clean_json({"value": [value]}, "this")
    assert cleaned == {"value": [stored]}
    assert type(cleaned["value"][0]) is type(stored)
    assert json.loads(json.dumps(cleaned, allow_nan=False, ensure_ascii=False).encode()) == cleaned


@given(JSON)
def test_plain_json_stays_as_it_is(value: Any) -> None:
    assert clean_json(value, "this") == value


@given(ANY_TEXT)
def test_every_text_can_be_encoded(text: str) -> None:
    cleaned = clean_text(text)
    assert "\0" not in cleaned.encode().decode()
    assert clean_text(cleaned) == cleaned
    assert clean_json([text], "this")[0].replace("\0", "\ufffd") == cleaned


def test_a_text_is_cut() -> None:
    assert clean_text("abc\udce9def", 4) == "abc\ufffd"


REFUSED = [
    object(),
    {1, 2},
    b"x",
    1j,
    numpy.complex64(1),
    numpy.array([1]),
    numpy.bytes_(b"3"),
    numpy.datetime64("2026-11-15"),
    {1: "a"},
    {None: 1},
    {"a": [object()]},
    10**5_000,
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_anything_else_is_refused_with_the_remedy(value: Any) -> None:
    with pytest.raises(TypeError, match=r"the thing cannot be stored as JSON .*pass numbers") as refused:
        clean_json(value, "the thing")
    assert isinstance(refused.value, ConfigurationError)


def test_what_refers_to_itself_or_is_nested_too_deep_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(DEEPEST):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(TypeError, match="nested deeper than 100 levels"):
            clean_json(value, "the thing")
    assert clean_json(deep[0], "the thing")


def test_what_is_too_large_is_refused() -> None:
    assert clean_json("x" * 8, "the thing", limit=10)
    with pytest.raises(ConfigurationError, match="the thing: 11 bytes of JSON, the limit is 10"):
        clean_json("x" * 9, "the thing", limit=10)
    with pytest.raises(ConfigurationError, match="limit"):
        clean_json("ä" * 6, "the thing", limit=10)


def test_what_was_handed_in_may_change_afterwards() -> None:
    rows = {"rows": [1]}
    cleaned = clean_json(rows, "this")
    copy = fresh_copy(cleaned)
    rows["rows"].append(2)
    assert cleaned == copy == {"rows": [1]}
    copy["rows"].append(3)
    assert cleaned == {"rows": [1]}


@pytest.mark.parametrize("value", ["three", [3], {}, b"3", 1j, object()])
def test_what_is_no_number_is_refused_as_one(value: Any) -> None:
    with pytest.raises(TypeError, match="done is .*; give a number"):
        clean_number(value, "done")


# --- what a body says ---------------------------------------------------------------------------------------


def test_a_body_that_says_what_cannot_be_stored_is_told_there_and_then() -> None:
    fire = Fire.fake()
    for say in (
        lambda: fire.report(done="three"),  # type: ignore[arg-type]
        lambda: fire.report(done=1, seen={1, 2}),
        lambda: fire.save({"seen": {1, 2}}),
        lambda: fire.save(1, total=object()),
        lambda: fire.keep(object()),
    ):
        with pytest.raises(TypeError, match=fire.key):
            say()
    assert (fire.reports, fire.saved, fire.keeps) == ([], [], [])


def test_what_a_body_has_saved_does_not_change_in_its_hands() -> None:
    fire = Fire.fake({"rows": [1]}, checkpoint={"seen": []})
    fire.checkpoint["seen"].append(1)
    fire.args["rows"].append(2)
    saved: dict[str, list[int]] = {"seen": [1]}
    fire.save(saved)
    fire.keep(saved)
    fire.report(rows=saved)
    saved["seen"].append(2)
    fire.checkpoint["seen"].append(3)
    assert (fire.saved, fire.keeps) == ([{"seen": [1]}], [{"seen": [1]}])
    assert fire.reports[0]["rows"] == {"seen": [1]}
    assert fire.record.checkpoint is None
