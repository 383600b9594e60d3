"""The fault of a value that the store cannot write: an outcome or a report that it refuses, however often it is sent.

Drawn apart from the other faults, for some seeds and there for some attempts, so that other seeds keep their histories.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from fencepost.model import Reason
from fencepost.store.base import GiveBack, Settle, Update
from tests.protocol.checker import Books
from tests.protocol.sim.focus import Focus

ATTEMPTS = (0.02, 0.1, 0.3)
"""The share of their attempts: one of these for each seed."""
WHOLLY = 0.2
"""The share of those of which nothing can be written, not even that they failed, until all is well."""


class CannotBeWritten(Exception):
    """What the store raises. No outage: it answers."""


class Values:
    def __init__(self, seed: int, focus: Focus, books: Books, is_calm: Callable[[], bool]) -> None:
        self._seed = seed
        self._books = books
        self._is_calm = is_calm
        chance = random.Random(f"{seed}:values")
        self._share = chance.choice(ATTEMPTS) if focus.has("values", chance.random()) else 0.0

    def started(self, key: str, token: int) -> bool:
        """A body starts; whether what it will say cannot be written."""
        draw = random.Random(f"{self._seed}:values:{key}:{token}").random()
        if self._is_calm() or draw >= self._share:
            return False
        self._books.unwritable[key, token] = draw < WHOLLY * self._share
        return True

    def refusal(self, name: str, args: tuple[Any, ...]) -> Exception | None:
        """A batch is one transaction: all of it is refused."""
        if name == "update_claims" and any(self._is_refused(update) for update in args[1]):
            return CannotBeWritten(f"one of {len(args[1])} updates")
        return None

    def _is_refused(self, update: Update) -> bool:
        wholly = self._books.unwritable.get((update.key, update.token))
        if wholly is None:
            return False
        if wholly and not self._is_calm():
            return True
        is_told = isinstance(update, Settle) and update.reason == Reason.NOT_RECORDED
        return not is_told and not isinstance(update, GiveBack)
