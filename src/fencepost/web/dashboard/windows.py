"""The stretch of time a page shows, from its address: how long, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fencepost.errors import FencepostError
from fencepost.insight.pictures.window import LONGEST, SHORTEST, Window, window_of
from fencepost.model.triggers import from_iso, iso
from fencepost.settings import duration
from fencepost.web.dashboard.view import View

SPANS = {"10m": "10 min", "1h": "1 h", "6h": "6 h", "1d": "24 h", "7d": "7 d", "30d": "30 d"}


@dataclass(frozen=True)
class Shown:
    window: Window
    span: str
    """As it stands in the address."""
    words: str
    follows: bool
    """It follows the clock."""
    earlier: str
    later: str | None
    wider: str | None
    narrower: str | None


def shown(view: View, now: datetime, default: str = "1h") -> Shown:
    span, length = _span(view.asked("span", default), default)
    until = _until(view.asked("until"))
    window = window_of(now, length, until)
    names = list(SPANS)
    place = names.index(span) if span in SPANS else -1

    def moved(by: timedelta) -> str:
        return view.same(until=iso((window.until + by).replace(microsecond=0)), after=None)

    return Shown(
        window,
        span,
        SPANS.get(span, span),
        until is None,
        moved(-length / 2),
        moved(length / 2) if window.since < now + timedelta(days=30) else None,
        view.same(span=names[place + 1]) if 0 <= place < len(names) - 1 else None,
        view.same(span=names[place - 1]) if place > 0 else None,
    )


def _span(text: str, default: str) -> tuple[str, timedelta]:
    try:
        length = duration(text)
    except FencepostError:
        return default, duration(default)
    return (text, length) if SHORTEST <= length <= LONGEST else (default, duration(default))


def _until(text: str) -> datetime | None:
    try:
        return from_iso(text) if text else None
    except FencepostError:
        return None
