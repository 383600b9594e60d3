"""The stored format: which number a namespace carries, which one this version writes, and what lies between them.

The number is raised by a release whose rows the release before cannot read. A replica converts an older store when it
opens it, and `fencepost store upgrade` does so ahead of time. Commands that only look convert nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fencepost.errors import ConfigurationError

UPGRADE = "`fencepost store upgrade` (add --dry-run to see what it would do)"


@dataclass(frozen=True, slots=True)
class Format:
    stored: int
    known: int
    """What this version writes."""
    steps: tuple[str, ...] = ()
    """What opening the store as a replica would change, in order, in words."""

    @property
    def is_current(self) -> bool:
        return self.stored == self.known and not self.steps

    def check(self, place: str, converts: bool) -> None:
        """Raise if this version does not know it, or would have to convert it and may not."""
        if self.stored > self.known:
            raise ConfigurationError(
                f"{place} has format {self.stored}, newer than the {self.known} this version of Fencepost knows; "
                "upgrade Fencepost on this replica"
            )
        if self.steps and not converts:
            raise ConfigurationError(
                f"{place} has format {self.stored}, older than this version of Fencepost writes, and a command that "
                f"only looks does not convert it; start a replica of this version, or call {UPGRADE}"
            )


@dataclass(frozen=True, slots=True)
class Present:
    """A replica, as its presence row names it."""

    id: str
    version: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What a namespace holds, read without opening the store."""

    format: Format
    jobs: int
    fires: int | None
    """None: counting them would take too long."""
    replicas: tuple[Present, ...]


def format_of(stored: int, known: int, words: Mapping[int, str], missing: Iterable[str] = ()) -> Format:
    """`words`: what each conversion does, by the number that it starts from. `missing`: what is to be added without a
    new number."""
    return Format(stored, known, (*(words[number] for number in range(stored, known)), *missing))
