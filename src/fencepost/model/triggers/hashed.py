"""`H` in cron fields: a number derived from the job's id, so that jobs written alike do not fire all at once."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from fencepost.errors import ConfigurationError

RANGES = ((0, 59), (0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
"""Second, minute, hour, day of the month (which every month has), month, day of the week."""

_TERM = re.compile(r"H(?:\((\d{1,2})-(\d{1,2})\))?(?:/(\d{1,2}))?")


@lru_cache(maxsize=1024)
def has_hashes(expression: str) -> bool:
    return any(term.startswith("H") for field in expression.split() for term in field.split(","))


def with_numbers(expression: str, job_id: str) -> str:
    """`H` becomes one number of the field's range, `H(9-16)` one of 9 to 16; `H/15` every fifteenth from such a one."""
    if not has_hashes(expression):
        return expression
    fields = expression.split()
    ranges = RANGES[-len(fields) :]
    if len(fields) > len(ranges):
        return expression  # not a cron expression: what reads it says so
    return " ".join(
        ",".join(_number(term, low, high, f"{job_id}/{len(fields) - place}") for term in field.split(","))
        for place, (field, (low, high)) in enumerate(zip(fields, ranges, strict=True))
    )


def _number(term: str, low: int, high: int, name: str) -> str:
    if not term.startswith("H"):
        return term
    found = _TERM.fullmatch(term)
    if found is None:
        raise ConfigurationError(f"{term!r} is not a cron field with H; write H, H(9-16), H/15 or H(9-16)/2.")
    first, last, step = (None if text is None else int(text) for text in found.groups())
    if first is not None and last is not None:
        if not low <= first <= last <= (31 if high == 28 else high):
            raise ConfigurationError(f"{term!r} is out of range; use numbers from {low} to {high}.")
        low, high = first, last
    if step is None:
        return str(low + _share(name, high - low + 1))
    if not 1 <= step <= high - low + 1:
        raise ConfigurationError(f"the step of {term!r} does not fit; use 1 to {high - low + 1}.")
    return f"{low + _share(name, step)}-{high}/{step}"


def _share(name: str, among: int) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % among
