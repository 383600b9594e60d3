"""`after(extract)`: a job that has no calendar of its own, and follows the fires of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from fencepost.errors import ConfigurationError
from fencepost.model.triggers.base import Trigger
from fencepost.model.values import checked_id

On = Literal["succeeded", "ended"]
MOST_PARENTS = 20
MOST_GENERATIONS = 50
"""Of a chain."""
CIRCLE = "these jobs would follow each other in a circle: {}; take one after(…) out"


@dataclass(frozen=True, slots=True)
class After(Trigger):
    """Made by `after(…)`. Its fires are no calendar's: each is added when the last of its parents has ended."""

    parents: tuple[str, ...]
    when: On = "succeeded"

    def __post_init__(self) -> None:
        for parent in self.parents:
            checked_id(parent, "parent")
        if not 1 <= len(set(self.parents)) == len(self.parents) <= MOST_PARENTS:
            raise ConfigurationError(
                f"after(…) names 1 to {MOST_PARENTS} different jobs, not {self.parents!r}"
            )
        if self.when not in ("succeeded", "ended"):
            raise ConfigurationError(f'after(…, on={self.when!r}): use on="succeeded" or on="ended"')

    def _after(self, moment: datetime) -> Iterator[datetime]:
        return iter(())

    def describe(self) -> str:
        *more, last = self.parents
        names = f"{', '.join(more)} and {last}" if more else last
        return f"after {names}" if self.when == "succeeded" else f"after {names}, however they end"

    def to_json(self) -> dict[str, Any]:
        return {"type": "after", "parents": list(self.parents), "on": self.when}


def after_from_json(value: Mapping[str, Any]) -> After:
    parents = value.get("parents")
    if not isinstance(parents, list) or not all(isinstance(each, str) for each in parents):
        raise ConfigurationError('after needs "parents", a list of job ids.')
    return After(tuple(parents), value.get("on", "succeeded"))


def parents_of(trigger: Trigger | None) -> tuple[str, ...]:
    return trigger.parents if isinstance(trigger, After) else ()


def circle_of(id: str, trigger: Trigger | None, parents: Callable[[str], tuple[str, ...]]) -> list[str]:
    """The jobs that would follow each other in a circle if this one had this trigger, each after the next; none: there
    is no circle. `parents`: of any other job, each asked for once."""

    seen: set[str] = set()

    def walk(path: list[str], before: tuple[str, ...]) -> list[str]:
        for parent in before:
            if parent == id or len(path) > MOST_GENERATIONS:
                return [*path, parent]
            if parent not in seen:
                seen.add(parent)
                if found := walk([*path, parent], parents(parent)):
                    return found
        return []

    return walk([id], parents_of(trigger))
