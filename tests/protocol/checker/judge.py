"""What all judges have in common."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from fencepost.model import FireRecord
from tests.protocol.checker.books import Attempt, Body, Books
from tests.protocol.network import Request


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the store."""

    name: str
    args: tuple[Any, ...]
    reply: Any
    replica: str
    """Who asked for it; empty: a person did."""
    sent: float
    number: int
    healthy: Callable[[], set[str]]
    """Those nobody has a reason to declare dead."""


def declared_dead(step: Step) -> Attempt | None:
    """The run whose replica a person calls dead with this cancel; None: it is an ordinary one."""
    key, *more = step.args
    return (key, more[1]) if len(more) > 1 else None


class Judge:
    lost_with_the_store: ClassVar[tuple[str, ...]] = ()
    """Which of its books follow the store when that comes up with an earlier state."""

    def __init__(self, books: Books) -> None:
        self.books = books

    def step(self, step: Step) -> None:
        """After each step, by `_claim_fires` and so on where there is such a method."""
        method = self.method_of(step.name)
        if method is not None:
            method(step)

    def method_of(self, step: str) -> Callable[[Step], None] | None:
        found: Callable[[Step], None] | None = getattr(self, f"_{step}", None)
        return found

    def row(self, before: FireRecord | None, after: FireRecord | None) -> None:
        """A fire's row was written, or dropped; inside the step that does so."""

    def delivered(self, request: Request) -> None:
        """A replica takes the reply into its hands."""

    def refused(self, request: Request) -> None:
        """The store has refused a step because of a row that cannot be read."""

    def started(self, body: Body) -> None: ...

    def ended(self, body: Body) -> None: ...

    def finish(self, until: datetime) -> None:
        """All has been well for long."""

    def snapshot(self) -> dict[str, Any]:
        return {name: copy(getattr(self, name)) for name in self.lost_with_the_store}

    def restored(self, snapshot: dict[str, Any]) -> None:
        for name, value in snapshot.items():
            setattr(self, name, copy(value))
