"""Cursors of the ledger, as they stand in addresses."""

from __future__ import annotations

from datetime import datetime

from fencepost.insight.pages import INSTANT, Cursor
from fencepost.model.triggers import from_iso, iso
from fencepost.web.problems import Problem

DEEPEST = 10_000
"""Fires due at one and the same instant that a cursor can point into."""
WRONG = "cursor: give `next` of the page before, as it was"


def cursor_of(next: Cursor | None) -> str | None:
    return f"{iso(next[0])}~{next[1]}" if next else None


def from_cursor(text: str) -> tuple[datetime, int]:
    moment, _, given = text.partition("~")
    if not given.isascii() or not given.isdigit() or len(given) > 6 or int(given) > DEEPEST:
        raise Problem(422, WRONG)
    try:
        return from_iso(moment) + INSTANT, int(given)
    except OverflowError:  # the end of time
        raise Problem(422, WRONG) from None
