"""S2: a sink outside the store that compares tokens."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from fencepost.model import State
from tests.protocol.checker.books import Body, Books
from tests.protocol.checker.judge import Judge


class Sink(Judge):
    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self._accepted: dict[str, int] = {}
        """By fire: the token whose effect was accepted."""
        self._highest: dict[str, int] = defaultdict(int)
        self._refused_by: dict[str, int] = {}

    def effect(self, body: Body) -> None:
        """Refuses a lower token than it has seen, and a fire it has seen. Runs of one job that may overlap do not
        share a resource that compares tokens. They may if they could when they were claimed, whatever definition the
        answer came with."""
        resource = body.fire.job_id if self.books.limits[body.key, body.token] == 1 else body.key
        if body.token >= self._highest[resource] and body.key not in self._accepted:
            self._highest[resource] = body.token
            self._accepted[body.key] = body.token
        else:
            self._refused_by[body.key] = self._highest[resource]

    def finish(self, until: datetime) -> None:
        forgotten = {token for _, token in self.books.forgotten}
        for fire in self.books.state.fires.rows.values():
            # A run that the store has forgotten may have been here, with the token that comes next.
            refused = fire.key not in self._accepted and self._refused_by.get(fire.key) not in forgotten
            if fire.state is State.SUCCEEDED and refused:
                self.books.violation("S2", f"{fire.key} succeeded, but its effect was refused")
