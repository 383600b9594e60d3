"""Which seeds have what. Some faults and policies are drawn for a share of all seeds, apart from everything else, so
that the other seeds keep their histories. A focus gives them to every seed: what is rare is met sooner."""

from __future__ import annotations

from collections.abc import Iterable

SHARES = {
    "replace": 0.12,
    "chains": 0.12,
    "limits": 0.15,
    "priorities": 0.15,
    "engine": 0.25,
    "notices": 0.25,
    "changes": 0.25,
    "rows": 0.25,
    "values": 0.25,
    "backfills": 0.4,
    "moves": 0.06,
}
"""Newer fires replace older runs; jobs follow others; jobs share limits; jobs have priorities; some run on an engine;
there is a channel of notices; an application changes its jobs while it runs; rows cannot be read; values cannot be
written; people ask for backfills, skips, later fires and jitter; heartbeats find their server after they were
composed."""


class Focus:
    def __init__(self, kinds: Iterable[str] = ()) -> None:
        self._kinds = frozenset(kinds)
        if unknown := self._kinds - SHARES.keys():
            raise ValueError(f"no such focus: {sorted(unknown)}; there are {', '.join(SHARES)}")

    def has(self, kind: str, draw: float) -> bool:
        """Whether a seed that has drawn this has it."""
        return kind in self._kinds or draw < SHARES[kind]
